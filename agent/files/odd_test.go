package files

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// TestOddFiles has a good file beside each odd one.
func TestOddFiles(t *testing.T) {
	const tooBig = "the document is larger than 4 MiB, the most that is read: split it, for example into one object a document"
	const binary = "the file holds a NUL byte, so it is no YAML or JSON text (binary, or UTF-16?): it is read no further"
	tests := []struct {
		name  string
		make  func(t *testing.T, dir string)
		names []string
		want  []string
	}{
		{"empty", func(t *testing.T, dir string) { write(t, dir, "x.yaml", "") }, nil,
			[]string{"x.yaml: the file is empty: fill it, or remove it to remove what it described"}},
		{"only markers", func(t *testing.T, dir string) { write(t, dir, "x.yaml", "---\n---\n# x\n--- # y\n...\n\n") }, nil, nil},
		{"binary", func(t *testing.T, dir string) {
			write(t, dir, "x.yaml", "\x7fELF\x02\x01\x01\x00"+strings.Repeat("\xff\x00\x80", 100000))
		}, nil, []string{"x.yaml, document 1 (line 1): " + binary}},
		{"junk without NUL", func(t *testing.T, dir string) { write(t, dir, "x.yaml", strings.Repeat("\xff\x80\x81\n", 1000)) }, nil,
			[]string{"x.yaml, document 1 (line 1): invalid leading UTF-8 octet"}},
		{"binary JSON", func(t *testing.T, dir string) { write(t, dir, "x.json", "\x01\x02\x03 {}") }, nil,
			[]string{`x.json, document 1 (line 1): line 1: invalid character '\x01' looking for beginning of value`}},
		{"UTF-16", func(t *testing.T, dir string) { write(t, dir, "x.yaml", "\xff\xfek\x00i\x00n\x00d\x00") }, nil,
			[]string{"x.yaml, document 1 (line 1): " + binary}},
		{"byte order mark", func(t *testing.T, dir string) {
			write(t, dir, "x.yaml", "\ufeff"+named("x", "10.43.0.7"))
			write(t, dir, "y.json", "\ufeff"+`{"apiVersion":"v1","kind":"Service","metadata":{"name":"w"},"spec":{"clusterIP":"None"}}`)
		}, []string{"Service default/w", "Service default/x"}, nil},
		{"DOS lines", func(t *testing.T, dir string) {
			write(t, dir, "x.yaml", strings.ReplaceAll(named("x", "10.43.0.7")+named("w", "10.43.0.8"), "\n", "\r\n"))
		}, []string{"Service default/w", "Service default/x"}, nil},
		{"a directory", func(t *testing.T, dir string) { must(t, os.Mkdir(filepath.Join(dir, "x.yaml"), 0o755)) }, nil,
			[]string{"x.yaml: this is a directory: only regular files are read; give it another name, or move it away"}},
		{"a FIFO", func(t *testing.T, dir string) { must(t, unix.Mkfifo(filepath.Join(dir, "x.yaml"), 0o644)) }, nil,
			[]string{"x.yaml: this is a FIFO: only regular files are read; give it another name, or move it away"}},
		{"a device", func(t *testing.T, dir string) { must(t, os.Symlink("/dev/zero", filepath.Join(dir, "x.yaml"))) }, nil,
			[]string{"x.yaml: this is a device: only regular files are read; give it another name, or move it away"}},
		{"a socket", func(t *testing.T, dir string) {
			l, err := net.Listen("unix", filepath.Join(dir, "x.yaml"))
			must(t, err)
			t.Cleanup(func() { l.Close() })
		}, nil, []string{"x.yaml: this is a socket: only regular files are read; give it another name, or move it away"}},
		{"a dangling link", func(t *testing.T, dir string) { must(t, os.Symlink("nothing", filepath.Join(dir, "x.yaml"))) }, nil,
			[]string{"x.yaml: this is a symbolic link to a file that does not exist: mend or remove it"}},
		{"a link to itself", func(t *testing.T, dir string) { must(t, os.Symlink("x.yaml", filepath.Join(dir, "x.yaml"))) }, nil,
			[]string{"x.yaml: look at the file: too many levels of symbolic links"}},
		{"a sparse file of 1 GB", func(t *testing.T, dir string) {
			must(t, os.WriteFile(filepath.Join(dir, "x.yaml"), []byte(named("x", "10.43.0.7")+"---\n"), 0o644))
			must(t, os.Truncate(filepath.Join(dir, "x.yaml"), 1<<30))
		}, []string{"Service default/x"}, []string{"x.yaml, document 2 (line 11): " + binary}},
		{"a document of 5 MB between others", func(t *testing.T, dir string) {
			write(t, dir, "x.yaml", named("x", "10.43.0.7")+"---\nkind: ConfigMap\napiVersion: v1\ndata:\n  a: |\n"+strings.Repeat("    0123456789abcdef\n", 250000)+named("w", "10.43.0.8"))
		}, []string{"Service default/w", "Service default/x"}, []string{"x.yaml, document 2 (line 11): " + tooBig}},
		{"one line of 5 MB", func(t *testing.T, dir string) {
			write(t, dir, "x.yaml", "a: "+strings.Repeat("b", 5<<20)+"\n"+named("x", "10.43.0.7"))
		}, []string{"Service default/x"}, []string{"x.yaml, document 1 (line 1): " + tooBig}},
		{"JSON documents in a row", func(t *testing.T, dir string) {
			one := `{"apiVersion":"v1","kind":"Service","metadata":{"name":%q},"spec":{"clusterIP":%s}}`
			write(t, dir, "x.json", fmt.Sprintf(one, "x", `"None"`)+fmt.Sprintf("\n"+one+" ", "a}{\\\"b", `"None"`)+"[1]\n"+fmt.Sprintf(one, "w", `5`)+fmt.Sprintf(one, "v", `"None"`)+"rest")
		}, []string{"Service default/v", "Service default/x"}, []string{
			`x.json, document 2 (line 2): Service default/a}{\"b: metadata.name: Invalid value: "a}{\\\"b": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')`,
			"x.json, document 3 (line 2): the document is not a mapping: an object with apiVersion, kind and metadata is wanted",
			"x.json, document 4 (line 3): Service default/w: spec.clusterIP: Invalid value: 5: must be a string (put it in quotes)",
			"x.json, document 6 (line 3): line 3: invalid character 'r' looking for beginning of value"}},
		{"hundreds of bad documents", func(t *testing.T, dir string) { write(t, dir, "x.yaml", strings.Repeat("---\na\n", 150)) }, nil,
			append(repeated(100, func(i int) string {
				return fmt.Sprintf("x.yaml, document %d (line %d): the document is not a mapping: an object with apiVersion, kind and metadata is wanted", i+1, 2*i+2)
			}), "x.yaml: 50 more problems in this file")},
		{"names that are not read", func(t *testing.T, dir string) {
			for _, name := range []string{".x.yaml", "#x.yaml#", ".#x.yaml", "x.yaml~", "x.yaml.swp", "x.txt", "yaml", "#x.yaml"} {
				write(t, dir, name, named("x", "10.43.0.7"))
			}
			must(t, os.Mkdir(filepath.Join(dir, "sub"), 0o755))
			write(t, filepath.Join(dir, "sub"), "x.yaml", named("x", "10.43.0.7"))
		}, nil, nil},
		{"ten thousand endpoints in one slice", func(t *testing.T, dir string) { write(t, dir, "x.yaml", sliceText(1, 250)+manySlice(10000)) },
			[]string{"EndpointSlice default/many", "EndpointSlice default/svc-1-abcde"}, nil},
		{"an upper-case name", func(t *testing.T, dir string) { write(t, dir, "X.YML", named("x", "10.43.0.7")) }, []string{"Service default/x"}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, "good.yaml", named("good", "10.43.0.1"))
			tt.make(t, dir)
			r := start(t, dir)
			r.wantSynced(t)
			r.wantNames(t, append(tt.names, "Service default/good")...)
			eventually(t, "the problems", func() bool { return len(r.reasons(dir)) == len(tt.want) })
			if diff := cmp.Diff(tt.want, r.reasons(dir)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			write(t, dir, "good.yaml", named("good", "10.43.0.2"))
			eventually(t, "a change of the good file", func() bool { return clusterIPOf(r, "good") == "10.43.0.2" })
		})
	}
}

func repeated(n int, line func(int) string) []string {
	var list []string
	for i := range n {
		list = append(list, line(i))
	}
	return list
}

func manySlice(n int) string {
	var b strings.Builder
	b.WriteString("---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: many\n  labels: {kubernetes.io/service-name: many}\naddressType: IPv4\nports: [{port: 1}]\nendpoints:\n")
	for i := range n {
		fmt.Fprintf(&b, "- addresses: [10.42.%d.%d]\n", i/250, i%250+1)
	}
	return b.String()
}

func TestManyEndpointsArriveWhole(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "x.yaml", manySlice(10000))
	r := start(t, dir)
	r.wantSynced(t)
	s, ok := r.object("EndpointSlice default/many").(*discoveryv1.EndpointSlice)
	if !ok || len(s.Endpoints) != 10000 || s.Endpoints[9999].Addresses[0] != "10.42.39.250" {
		t.Errorf("the slice did not arrive whole")
	}
}

// TestBigFile reads 50 MB of documents, most of them of kinds that are not read.
func TestBigFile(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "x.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriter(f)
	const services = 500
	for i := range services {
		w.WriteString("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata:\n  a: |\n")
		w.WriteString(strings.Repeat("    0123456789abcdef0123456789abcdef0123456789abcdef\n", 2000))
		w.WriteString(serviceText(i))
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if st, _ := f.Stat(); st.Size() < 50e6 {
		t.Fatalf("%d bytes only", st.Size())
	}
	f.Close()
	r := start(t, dir)
	deadline := time.Now().Add(20 * time.Second)
	for len(r.names()) < services && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
	}
	if n := len(r.names()); n != services {
		t.Errorf("%d Services, want %d", n, services)
	}
	if got := r.reasons(dir); got != nil {
		t.Errorf("problems: %q", got)
	}
}

// TestUnreadable takes root's rights over files away from one thread, as root may read everything.
func TestUnreadable(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", named("a", "10.43.0.1"))
	if err := os.Chmod(filepath.Join(dir, "a.yaml"), 0); err != nil {
		t.Fatal(err)
	}
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	type opened struct {
		in     *os.File
		result readResult
		err    error
	}
	done := make(chan opened)
	go func() {
		var o opened
		if os.Geteuid() == 0 {
			runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
			_, o.err = unix.SetfsuidRetUid(65534)
		}
		o.in, o.result = open(d, &file{name: "a.yaml"})
		done <- o
	}()
	o := <-done
	if o.err != nil {
		t.Fatal(o.err)
	}
	if o.in != nil {
		o.in.Close()
		t.Fatal("the file was opened without a right to")
	}
	want := "open the file: permission denied: make it readable for the user that runs this agent"
	if o.result.err == nil || o.result.err.Error() != want {
		t.Errorf("got error %v, want %q", o.result.err, want)
	}
}
