package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"sluice/proxy"
	"sluice/test/lab"
	"sluice/test/process"
	"sluice/test/tempdir"
)

// Options are what a cluster can be made with.
type Options struct {
	// Loopback runs the servers on loopback where the test itself runs, which needs no
	// rights. Join is not possible then.
	Loopback bool
}

// Tokens of the users that New gives to the server.
const (
	// adminToken is that of the client.
	adminToken = "admin-token"
	// ProxyToken is that of system:kube-proxy; see SetTokens.
	ProxyToken = "proxy-token"
)

// ProxyUser is the user that a node's proxy is, who is bound to the ClusterRole system:node-proxier.
const ProxyUser = "system:kube-proxy"

// Address of the server, and of the bridge that joined namespaces hang on.
var serverPrefix = netip.MustParsePrefix("192.168.60.1/24")

// Cluster is a control plane.
type Cluster struct {
	CA *Authority
	// URL of the API server.
	URL string
	// ServiceCIDRs are the ranges of ClusterIPs of a server without data, lab.ServiceCIDRs unless they are changed before StartServer.
	// The first address is that of the Service default/kubernetes.
	ServiceCIDRs string

	ns       *lab.Namespace // nil on loopback
	dir      *tempdir.Dir
	programs string // folder of kube-apiserver and etcd
	bind     netip.AddrPort
	etcd     string // URL of its clients' port
	etcdPeer string
	running  map[string]*process.Process
	client   *http.Client
	nextLink int
}

// ErrMissing says that a program that a cluster is made of is not there.
var ErrMissing = errors.New("missing program")

// Peers is the folder of the programs that test/peers/build makes: kube-apiserver, etcd and
// kube-proxy. The error is ErrMissing if one of the names is not in it.
func Peers(names ...string) (dir string, err error) {
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sluice").Output()
	if err != nil {
		return "", fmt.Errorf("find the module's folder: %w", err)
	}
	out, err := exec.Command(filepath.Join(strings.TrimSpace(string(root)), "test/peers/build"), "--dir").Output()
	if err != nil {
		return "", fmt.Errorf("ask test/peers/build for its folder: %w", err)
	}
	dir = strings.TrimSpace(string(out))
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return "", fmt.Errorf("%w: %w; test/peers/build makes it, in some minutes", ErrMissing, err)
		}
	}
	return dir, nil
}

// New starts etcd and kube-apiserver and waits until they are ready. The error is ErrMissing
// where they are not installed.
func New(ctx context.Context, o Options) (*Cluster, error) {
	peers, err := Peers("kube-apiserver", "etcd")
	if err != nil {
		return nil, err
	}
	c := &Cluster{ServiceCIDRs: fmt.Sprintf("%v,%v", lab.ServiceCIDRs[proxy.IPv4], lab.ServiceCIDRs[proxy.IPv6]), programs: peers, running: map[string]*process.Process{}}
	if err := c.begin(ctx, o); err != nil {
		return nil, errors.Join(fmt.Errorf("start a control plane: %w", err), c.Close())
	}
	return c, nil
}

func (c *Cluster) begin(ctx context.Context, o Options) (err error) {
	if c.dir, err = tempdir.New("sluice-cluster-"); err != nil {
		return err
	}
	host := netip.MustParseAddr("127.0.0.1")
	if !o.Loopback {
		host = serverPrefix.Addr()
		if err := c.makeNamespace(ctx); err != nil {
			return err
		}
	}
	if c.bind, err = c.freePort(host); err != nil {
		return err
	}
	client, err := c.freePort(netip.MustParseAddr("127.0.0.1"))
	if err != nil {
		return err
	}
	peer, err := c.freePort(netip.MustParseAddr("127.0.0.1"))
	if err != nil {
		return err
	}
	c.URL, c.etcd, c.etcdPeer = "https://"+c.bind.String(), "http://"+client.String(), "http://"+peer.String()
	if c.CA, err = NewAuthority(); err != nil {
		return err
	}
	c.client = c.newClient()
	if err := c.writeServerFiles(); err != nil {
		return err
	}
	if err := c.SetTokens(ProxyToken); err != nil {
		return err
	}
	return errors.Join(c.StartEtcd(), c.StartServer(ctx))
}

// Close ends the servers and removes everything.
func (c *Cluster) Close() error {
	errs := []error{c.KillServer(), c.KillEtcd()}
	if c.client != nil {
		c.client.CloseIdleConnections()
	}
	if c.ns != nil {
		errs = append(errs, c.ns.Close())
	}
	if c.dir != nil {
		errs = append(errs, c.dir.Close())
	}
	return errors.Join(errs...)
}

// do runs fn where the servers run.
func (c *Cluster) do(fn func() error) error {
	if c.ns == nil {
		return fn()
	}
	return c.ns.Do(fn)
}

func (c *Cluster) freePort(host netip.Addr) (at netip.AddrPort, err error) {
	err = c.do(func() error {
		l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(host, 0)))
		if err != nil {
			return fmt.Errorf("look for a free port: %w", err)
		}
		at = netip.AddrPortFrom(host, l.Addr().(*net.TCPAddr).AddrPort().Port())
		return l.Close()
	})
	return at, err
}

// StartEtcd starts etcd, with the data it had before.
func (c *Cluster) StartEtcd() error {
	return c.start("etcd", "--data-dir", c.file("etcd"), "--unsafe-no-fsync", "--log-level", "error",
		"--listen-client-urls", c.etcd, "--advertise-client-urls", c.etcd,
		"--listen-peer-urls", c.etcdPeer, "--initial-advertise-peer-urls", c.etcdPeer, "--initial-cluster", "default="+c.etcdPeer)
}

// StartServer starts kube-apiserver and waits until it is ready.
func (c *Cluster) StartServer(ctx context.Context) error {
	advertise := c.bind.Addr()
	if advertise.IsLoopback() {
		advertise = netip.MustParseAddr("192.0.2.1") // the server refuses loopback
	}
	err := c.start("kube-apiserver", "--etcd-servers", c.etcd,
		"--bind-address", c.bind.Addr().String(), "--secure-port", fmt.Sprint(c.bind.Port()), "--advertise-address", advertise.String(),
		"--tls-cert-file", c.file("tls.crt"), "--tls-private-key-file", c.file("tls.key"), "--client-ca-file", c.file("ca.crt"),
		"--token-auth-file", c.file("tokens.csv"), "--authorization-mode", "RBAC", "--disable-admission-plugins", "ServiceAccount",
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", c.file("sa.key"),
		"--service-account-signing-key-file", c.file("sa.key"), "--cert-dir", c.dir.Path, "--shutdown-delay-duration", "0s",
		"--service-cluster-ip-range", c.ServiceCIDRs)
	if err != nil {
		return err
	}
	return c.awaitReady(ctx)
}

// startLimit is generous, as a machine that runs tests is busy.
const startLimit = 2 * time.Minute

func (c *Cluster) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		_, err := c.Do(ctx, http.MethodGet, "/readyz", nil)
		if err == nil { // the server makes this Namespace a moment later, the first time
			_, err = c.Do(ctx, http.MethodGet, "/api/v1/namespaces/default", nil)
		}
		if err == nil {
			return nil
		}
		select {
		case <-c.running["kube-apiserver"].Ended:
			return fmt.Errorf("kube-apiserver ended by itself; the end of its log:\n%s", c.ServerLog(2000))
		case <-ctx.Done():
			return fmt.Errorf("kube-apiserver is not ready: %w; the end of its log:\n%s", err, c.ServerLog(2000))
		case <-time.After(50 * time.Millisecond):
		}
	}
}
