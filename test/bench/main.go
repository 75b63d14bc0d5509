// Command bench measures the agent as a whole: from the start to complete
// rules, one endpoint changed, and memory, for several sizes of cluster, each in
// a network namespace of its own. Run it as root: `make bench`.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"sluice/agent/status"
	"sluice/test/lab"
	"sluice/test/process"
	"sluice/test/procfs"
	"sluice/test/tempdir"
)

func main() {
	binary := flag.String("binary", "bin/sluice", "the program to measure")
	changes := flag.Int("changes", 50, "how many times one endpoint is changed")
	sizes := flag.String("sizes", "1x1,100x3,1000x10,10000x10", "Services x endpoints, comma-separated")
	limit := flag.Float64("max-anonymous", 0, "fail if an agent has more anonymous memory than this, in MB; 0: no limit")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *binary, *sizes, *changes, *limit); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, binary, sizes string, changes int, limit float64) error {
	info, err := os.Stat(binary)
	if err != nil {
		return fmt.Errorf("%w; run `make build` first", err)
	}
	fmt.Printf("%s: %.1f MB\n\n", binary, float64(info.Size())/1e6)
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "SERVICES x ENDPOINTS\tSTART TO RULES\tRESTART TO RULES\tONE CHANGE: AGENT (median, max)\tWITH THE FILE'S WAY (median)\tANONYMOUS\tRSS\tPEAK RSS\tCPU")
	var tooLarge error
	for _, size := range strings.Split(sizes, ",") {
		var b bench
		if _, err := fmt.Sscanf(size, "%dx%d", &b.services, &b.endpoints); err != nil {
			return fmt.Errorf("size %q: %w", size, err)
		}
		b.binary = binary
		if err := b.run(ctx, changes); err != nil {
			return fmt.Errorf("%s: %w", size, err)
		}
		fmt.Fprintf(t, "%d x %d\t%v\t%v\t%v, %v\t%v\t%.1f MB\t%.1f MB\t%.1f MB\t%v\n", b.services, b.endpoints, b.start.Round(time.Millisecond), b.restart.Round(time.Millisecond),
			b.seen[len(b.seen)/2].Round(10*time.Microsecond), b.seen[len(b.seen)-1].Round(10*time.Microsecond), b.whole[len(b.whole)/2].Round(100*time.Microsecond),
			float64(b.anonymous)/1e6, float64(b.rss)/1e6, float64(b.peak)/1e6, b.cpu)
		if used := float64(b.anonymous) / 1e6; limit > 0 && used > limit {
			tooLarge = errors.Join(tooLarge, fmt.Errorf("%s: the agent has %.1f MB of anonymous memory, more than %v MB", size, used, limit))
		}
	}
	return errors.Join(t.Flush(), tooLarge)
}

// bench is one size and what was measured.
type bench struct {
	binary              string
	services, endpoints int

	start, restart time.Duration
	seen           []time.Duration // what the agent took from seeing a change to having written it
	whole          []time.Duration // from the file's rename to the same
	anonymous, rss int64           // bytes
	peak           int64           // of rss
	cpu            time.Duration   // user and system, of the first agent

	dir, manifests, socket string
	ns                     *lab.Namespace
	agent                  *process.Process
	written                chan written
}

// written is one line of the agent's log: rules were written.
type written struct {
	at     time.Time
	waited time.Duration
	added  int
}

func (b *bench) run(ctx context.Context, changes int) error {
	dir, err := tempdir.New("sluice-bench-")
	if err != nil {
		return err
	}
	defer dir.Close()
	b.dir = dir.Path
	b.manifests, b.socket = filepath.Join(b.dir, "manifests"), filepath.Join(b.dir, "sock")
	if err := b.writeManifests(); err != nil {
		return err
	}
	if b.ns, err = lab.NewNamespace("bench"); err != nil {
		return err
	}
	defer b.ns.Close()
	if _, err := b.ns.Run(ctx, "", "ip", "link", "set", "lo", "up"); err != nil {
		return err
	}
	defer func() {
		if b.agent != nil {
			b.agent.Kill() // after an error
		}
	}()
	for _, took := range []*time.Duration{&b.start, &b.restart} {
		if *took, err = b.startAgent(ctx); err != nil {
			return err
		}
		if took == &b.start {
			if err := b.measureChanges(ctx, changes); err != nil {
				return err
			}
			if err := b.readMemory(); err != nil {
				return err
			}
		}
		if err := b.stopAgent(); err != nil {
			return err
		}
		if took == &b.start {
			b.cpu = (b.agent.Cmd.ProcessState.UserTime() + b.agent.Cmd.ProcessState.SystemTime()).Round(10 * time.Millisecond)
		}
	}
	slices.Sort(b.seen)
	slices.Sort(b.whole)
	return nil
}

// startAgent starts the agent and waits until the rules are complete.
func (b *bench) startAgent(ctx context.Context) (time.Duration, error) {
	cmd := exec.Command(b.binary, "agent", "--manifests", b.manifests, "--socket", b.socket, "--hostname-override", "node1",
		"--data-dir", filepath.Join(b.dir, "data"), "--healthz-bind-address", "", "--log-format", "json", "--log-level", "debug", "--cluster-cidr", "10.128.0.0/9")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	log, stderr, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	cmd.Stderr = stderr
	b.written = make(chan written, 1000)
	began := time.Now()
	b.agent, err = process.Start(b.ns, cmd)
	stderr.Close() // the agent has its own
	if err != nil {
		log.Close()
		return 0, err
	}
	go func() {
		defer log.Close()
		defer close(b.written)
		for lines := bufio.NewScanner(log); lines.Scan(); {
			var l struct {
				Msg, Family string
				Waited      time.Duration
				Added       int
			}
			if json.Unmarshal(lines.Bytes(), &l) == nil && l.Msg == "rules written" && l.Family == "IPv4" {
				b.written <- written{time.Now(), l.Waited, l.Added}
			}
		}
	}()
	w, err := b.next(ctx, time.Minute)
	if err != nil {
		return 0, err
	}
	s, err := status.Client{Socket: b.socket}.Status(ctx)
	if err != nil {
		return 0, err
	}
	if got := s.Families[0].Frontends; got != b.services || s.Families[0].Endpoints != b.services*b.endpoints {
		return 0, fmt.Errorf("the agent serves %d frontends with %d endpoints", got, s.Families[0].Endpoints)
	}
	return w.at.Sub(began), nil
}

func (b *bench) next(ctx context.Context, timeout time.Duration) (written, error) {
	select {
	case w, ok := <-b.written:
		if !ok {
			return w, errors.New("the agent ended")
		}
		return w, nil
	case <-ctx.Done():
		return written{}, ctx.Err()
	case <-time.After(timeout):
		return written{}, fmt.Errorf("the agent wrote nothing within %v", timeout)
	}
}

func (b *bench) stopAgent() error {
	if err := b.agent.End(syscall.SIGTERM, 10*time.Second); err != nil {
		return err
	}
	if !b.agent.Cmd.ProcessState.Success() {
		return fmt.Errorf("the agent ended: %v", b.agent.Cmd.ProcessState)
	}
	return nil
}

// measureChanges moves one endpoint of one Service to another address, again and again.
func (b *bench) measureChanges(ctx context.Context, changes int) error {
	time.Sleep(500 * time.Millisecond) // the collector's work for the start is not a change's
	for i := range changes {
		began := time.Now()
		if err := b.writeService(b.services/2, i+1); err != nil {
			return err
		}
		w, err := b.next(ctx, time.Minute)
		if err != nil {
			return err
		}
		b.seen = append(b.seen, w.waited)
		b.whole = append(b.whole, w.at.Sub(began))
		time.Sleep(120 * time.Millisecond) // each change is a lone one: more than --min-sync-period apart
	}
	return nil
}

func (b *bench) readMemory() error {
	m, err := procfs.Memory(b.agent.Cmd.Process.Pid)
	b.anonymous, b.rss, b.peak = m["RssAnon"], m["VmRSS"], m["VmHWM"]
	return err
}

func (b *bench) writeManifests() error {
	if err := os.Mkdir(b.manifests, 0o755); err != nil {
		return err
	}
	for i := range b.services {
		if err := b.writeService(i, 0); err != nil {
			return err
		}
	}
	return nil
}

// address returns the n-th address behind base.
func address(base string, n int) netip.Addr {
	a := netip.MustParseAddr(base).As4()
	v := uint32(a[0])<<24 | uint32(a[1])<<16 | uint32(a[2])<<8 | uint32(a[3])
	v += uint32(n)
	return netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)})
}

// writeService writes a Service and its EndpointSlice in a file, in one step. The first endpoint's address depends on generation.
func (b *bench) writeService(n, generation int) error {
	var y strings.Builder
	fmt.Fprintf(&y, `apiVersion: v1
kind: Service
metadata:
  name: web-%d
  namespace: default
spec:
  clusterIP: %v
  selector:
    app: web-%[1]d
  ports:
  - name: http
    port: 80
    targetPort: 8080
    protocol: TCP
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: web-%[1]d-x7x2p
  namespace: default
  labels:
    kubernetes.io/service-name: web-%[1]d
addressType: IPv4
ports:
- name: http
  port: 8080
  protocol: TCP
endpoints:
`, n, address("10.64.0.1", n))
	for i := range b.endpoints {
		a := address("10.128.0.1", n*b.endpoints+i)
		if i == 0 && generation > 0 {
			a = address("10.200.0.1", generation)
		}
		fmt.Fprintf(&y, "- addresses: [%v]\n  conditions: {ready: true, serving: true, terminating: false}\n  nodeName: node%d\n", a, i%4)
	}
	temp := filepath.Join(b.dir, "new")
	if err := os.WriteFile(temp, []byte(y.String()), 0o644); err != nil {
		return err
	}
	return os.Rename(temp, filepath.Join(b.manifests, fmt.Sprintf("web-%d.yaml", n)))
}
