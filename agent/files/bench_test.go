package files

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"sluice/agent/source"
)

// manifests writes n Services with 10 endpoints each, as kubectl would print them.
func manifests(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		b.WriteString(serviceText(i))
		b.WriteString(sliceText(i, 10))
	}
	return b.Bytes()
}

func serviceText(i int) string {
	return fmt.Sprintf(`---
apiVersion: v1
kind: Service
metadata:
  name: svc-%d
  namespace: default
spec:
  type: ClusterIP
  clusterIP: 10.43.%d.%d
  ports:
  - name: http
    port: 80
    protocol: TCP
    targetPort: 8080
  selector:
    app: svc-%d
`, i, i/250, i%250+1, i)
}

func sliceText(i, endpoints int) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: svc-%d-abcde
  namespace: default
  labels:
    kubernetes.io/service-name: svc-%d
addressType: IPv4
ports:
- name: http
  port: 8080
  protocol: TCP
endpoints:
`, i, i)
	for e := range endpoints {
		fmt.Fprintf(&b, `- addresses:
  - 10.42.%d.%d
  conditions:
    ready: true
  nodeName: node-%d
`, i%250, e+1, e%3)
	}
	return b.String()
}

// nowhere is a sink that lets go of everything.
type nowhere struct {
	done    context.CancelFunc
	changes int
}

func (n *nowhere) Apply(_ context.Context, changes []source.Change) error {
	n.changes += len(changes)
	return nil
}
func (n *nowhere) Replace(context.Context, source.Kind, map[source.Name]struct{}) error { return nil }
func (n *nowhere) Synced()                                                              { n.done() }
func (n *nowhere) SetProblems(p []source.Problem)                                       { panic(fmt.Sprint(p)) }

// BenchmarkFirstLoad reads Services with 10 endpoints each from a directory, to the first complete picture.
func BenchmarkFirstLoad(b *testing.B) {
	for _, n := range []int{100, 10000} {
		b.Run(fmt.Sprintf("services=%d", n), func(b *testing.B) {
			dir := b.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "all.yaml"), manifests(n), 0o644); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				ctx, cancel := context.WithCancel(context.Background())
				sink := &nowhere{done: cancel}
				s := New(Options{Dir: dir, Log: slog.New(slog.DiscardHandler)})
				if err := s.Run(ctx, sink); err != nil {
					b.Fatal(err)
				}
				if sink.changes != 2*n {
					b.Fatalf("%d changes, want %d", sink.changes, 2*n)
				}
				b.StopTimer()
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				b.ReportMetric(float64(m.HeapAlloc)/1024, "kept-KiB")
				runtime.KeepAlive(s)
				b.StartTimer()
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	d := New(Options{}).decoder
	for name, text := range map[string]string{"service": serviceText(7)[4:], "slice": sliceText(7, 10)[4:]} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if doc := d.decode([]byte(text), false); len(doc.objects) != 1 || doc.objects[0].object == nil {
					b.Fatalf("refused: %+v", doc)
				}
			}
		})
	}
}

// BenchmarkOneChange edits one EndpointSlice among 10,000 Services, and scans.
func BenchmarkOneChange(b *testing.B) {
	const services = 10000
	for name, perFile := range map[string]int{"in-one-file": services, "in-100-files": services / 100} {
		b.Run(name, func(b *testing.B) {
			dir := b.TempDir()
			text := func(first, edit int) []byte {
				var t bytes.Buffer
				for i := first; i < first+perFile; i++ {
					t.WriteString(serviceText(i))
					t.WriteString(sliceText(i, 10+edit*(1-min(i-first, 1))))
				}
				return t.Bytes()
			}
			for i := 0; i < services; i += perFile {
				write(b, dir, fmt.Sprintf("%05d.yaml", i), string(text(i, 0)))
			}
			s := New(Options{Dir: dir, Log: slog.New(slog.DiscardHandler)})
			s.dir = dir
			sink := &nowhere{}
			scan := func() {
				if _, err := s.scan(context.Background(), sink); err != nil {
					b.Fatal(err)
				}
			}
			scan()
			s.synced = true
			for _, f := range s.files {
				f.settled = true
			}
			sink.changes = 0
			texts := []string{string(text(0, 1)), string(text(0, 0))}
			n := 0
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				write(b, dir, "00000.yaml", texts[n%2])
				b.StartTimer()
				scan()
				n++
			}
			if sink.changes != n {
				b.Fatalf("%d changes, want %d", sink.changes, n)
			}
		})
	}
}
