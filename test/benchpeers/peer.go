package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice/proxy/nft"
	"sluice/test/cluster"
	"sluice/test/kubeproxy"
	"sluice/test/lab"
	"sluice/test/procfs"
)

// peer is one of the proxies that are compared.
type peer struct {
	name  string
	start func(p *process) error
	// complete tells whether the rules of all objects are in the kernel.
	complete func(k *kernel, s size) (bool, error)
	// startsOffline: it can start without the API server.
	startsOffline bool
}

// process is a peer at work, in a node's namespace of its own.
type process struct {
	peer
	binary, dir string
	ns          *lab.Namespace
	node        string
	cmd         *exec.Cmd
	ended       chan struct{}
	output      func() string // of a process that has ended
}

func (p *process) path(name string) string { return filepath.Join(p.dir, name) }

// peers are the two of each mode.
var peers = map[string]struct{ kubeProxy, sluice peer }{
	"nftables": {
		peer{name: "kube-proxy", start: startKubeProxy("nftables"), complete: func(k *kernel, s size) (bool, error) {
			if n, err := k.elements(kubeproxy.TableName, "service-ips"); err != nil || n < s.services {
				return false, err
			}
			n, hooked, err := k.chains(kubeproxy.TableName, "nat-prerouting", "service-") // one for each Service, written with its rule
			return hooked && n >= s.services, err
		}},
		peer{name: "sluice", start: startSluice("nftables"), startsOffline: true, complete: func(k *kernel, s size) (bool, error) {
			if _, hooked, err := k.chains(nft.TableName, "nat-prerouting", ""); err != nil || !hooked {
				return false, err
			}
			if n, err := k.elements(nft.TableName, "service-ips"); err != nil || n < s.services {
				return false, err
			}
			n, err := k.elements(nft.TableName, "endpoints")
			return n >= s.services*s.endpoints, err
		}},
	},
	// iptables-nft is the variant that can be looked at by the same means.
	"iptables": {
		peer{name: "kube-proxy", start: startKubeProxy("iptables"), complete: natChains("KUBE-SVC-")},
		peer{name: "sluice", start: startSluice("iptables"), startsOffline: true, complete: natChains("SLUICE-SVC-")},
	},
}

// natChains waits for a chain for each Service; it is written with its rules.
func natChains(prefix string) func(*kernel, size) (bool, error) {
	return func(k *kernel, s size) (bool, error) {
		n, hooked, err := k.chains("nat", "PREROUTING", prefix)
		return hooked && n >= s.services, err
	}
}

func startKubeProxy(mode string) func(*process) error {
	return func(p *process) error {
		k, err := kubeproxy.Start(p.ns, p.binary, p.dir, kubeproxy.Config{
			Mode: mode, Kubeconfig: p.path("kubeconfig"), HostnameOverride: p.node, ClusterCIDR: clusterCIDR,
		})
		if err == nil {
			p.cmd, p.ended, p.output = k.Cmd, k.Ended, k.Output
		}
		return err
	}
}

func startSluice(mode string) func(*process) error {
	return func(p *process) error {
		var output strings.Builder
		p.cmd = exec.Command(p.binary, "agent", "--proxy-mode", mode, "--kubeconfig", p.path("kubeconfig"), "--node-name", p.node, "--cluster-cidr", clusterCIDR,
			"--data-dir", p.path("data"), "--socket", p.path("sock"), "--config", p.path("config.yaml"))
		p.cmd.Stdout, p.cmd.Stderr = &output, &output
		p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := os.WriteFile(p.path("config.yaml"), nil, 0o600); err != nil {
			return err
		}
		if err := p.ns.Start(p.cmd); err != nil {
			return err
		}
		p.ended, p.output = make(chan struct{}), output.String
		go func() {
			p.cmd.Wait()
			close(p.ended)
		}()
		return nil
	}
}

// newNode makes the namespace of a node; with a cluster, it reaches the API server and has a Node object.
func newNode(ctx context.Context, name string, c *cluster.Cluster) (*lab.Namespace, error) {
	ns, err := lab.NewNamespace(name)
	if err != nil {
		return nil, err
	}
	// Where Services and endpoints are is of no matter: their packets only pass the rules.
	err = ns.IP(ctx, "link set lo up\nroute add 10.0.0.0/8 dev lo")
	if err == nil && c != nil {
		var link *cluster.Link
		if link, err = c.Join(ctx, ns); err == nil {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
			node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: link.Addr.String()}}
			err = errors.Join(c.Apply(ctx, node), c.ApplyStatus(ctx, node))
		}
	}
	if err != nil {
		return nil, errors.Join(err, ns.Close())
	}
	return ns, nil
}

// begin starts the process and waits until the rules are complete. It returns when that was and
// the CPU time that it took.
func (p *process) begin(ctx context.Context, s size) (took, cpu time.Duration, err error) {
	k, err := openKernel(p.ns)
	if err != nil {
		return 0, 0, err
	}
	defer k.close()
	began := time.Now()
	if err := p.start(p); err != nil {
		return 0, 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	go func() { // one that ends by itself need not be waited for
		select {
		case <-p.ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	at, err := k.awaitComplete(ctx, func(k *kernel) (bool, error) { return p.complete(k, s) })
	if errors.Is(err, context.DeadlineExceeded) {
		err = errSlow
	}
	if err != nil {
		p.kill()
		return 0, 0, fmt.Errorf("%s: %w; it wrote:\n%s", p.name, err, tail(p.output()))
	}
	cpu, err = readCPU(p.cmd.Process.Pid)
	return at.Sub(began), cpu, err
}

// startLimit is how long a start may take.
const startLimit = 10 * time.Minute

var errSlow = fmt.Errorf("the rules were not complete within %v", startLimit)

func tail(s string) string { return s[max(0, len(s)-3000):] }

// kill ends the process at once.
func (p *process) kill() {
	if p.cmd != nil {
		p.cmd.Process.Kill()
		<-p.ended
		p.cmd = nil
	}
}

// stop ends the process as systemd does.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.ended:
		p.cmd = nil
		return nil
	case <-time.After(30 * time.Second):
		p.kill()
		return fmt.Errorf("%s did not end after SIGTERM", p.name)
	}
}

// rest waits until the process uses hardly any CPU time, for a minute at most.
func (p *process) rest(ctx context.Context) error {
	last, err := readCPU(p.cmd.Process.Pid)
	for range 30 {
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(2 * time.Second):
		}
		var now time.Duration
		if now, err = readCPU(p.cmd.Process.Pid); now-last <= 2*procfs.Tick {
			return err
		}
		last = now
	}
	return err
}
