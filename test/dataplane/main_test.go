package dataplane

import (
	"context"
	"errors"
	"flag"
	"os"
	"strconv"
	"testing"

	"sluice/proxy"
	"sluice/proxy/iptables"
	"sluice/proxy/nft"
	"sluice/test/lab"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv(kubeProxyEnv) != "" {
		subjects["kube-proxy"] = newKubeProxy
	}
	// The cases wait more than they work: as many at a time as a subject needs labs.
	if err := flag.Set("test.parallel", strconv.Itoa(len(layouts)*len(proxy.Families))); err != nil {
		panic(err)
	}
	lab.Main(m)
}

// subjects are what the cases run against, by name.
var subjects = map[string]func(*lab.Lab, proxy.Family) (subject, error){
	"nft": func(l *lab.Lab, f proxy.Family) (subject, error) { return newNFT(l, f, nft.Options{}) },
	iptables.NFT: func(l *lab.Lab, f proxy.Family) (subject, error) {
		return newIPTables(l, f, iptables.Options{Variant: iptables.NFT})
	},
	iptables.Legacy: func(l *lab.Lab, f proxy.Family) (subject, error) {
		return newIPTables(l, f, iptables.Options{Variant: iptables.Legacy})
	},
}

// layouts are the ways in which node's pods reach each other.
var layouts = []struct {
	name    string
	bridged bool
}{{"routed", false}, {"bridged", true}}

// TestCases runs all cases. Families and layouts run at the same time, each in a
// lab of its own; within one the cases follow each other on one running subject, which must be
// as empty after each as it was before.
func TestCases(t *testing.T) {
	for name := range subjects {
		for _, layout := range layouts {
			for _, f := range proxy.Families {
				t.Run(name+"/"+layout.name+"/"+f.String(), func(t *testing.T) {
					t.Parallel()
					if name == iptables.Legacy && layout.bridged {
						t.Skip("both variants write the same rules, and the bridge does the same with them: the other variant is enough")
					}
					l := newLab(t, lab.Options{Bridged: layout.bridged})
					s := startSubject(t, l, f, name)
					for _, c := range allCases {
						t.Run(c.name, func(t *testing.T) {
							for _, what := range []string{name, name + "/" + layout.name} {
								if why := c.except[what]; why != "" {
									t.Skip(why)
								}
							}
							c.run(t, l, f, s)
						})
					}
				})
			}
		}
	}
}

// startSubject starts the subject of that name, until the test ends. Where this machine does not have it the test is skipped.
func startSubject(t *testing.T, l *lab.Lab, f proxy.Family, name string) subject {
	t.Helper()
	if name == iptables.NFT || name == iptables.Legacy {
		needIPTables(t, l, f, name)
	}
	s, err := subjects[name](l, f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func newLab(t *testing.T, o lab.Options) *lab.Lab {
	t.Helper()
	l, err := lab.New(t.Context(), o)
	if o.Bridged && errors.Is(err, os.ErrNotExist) {
		t.Skipf("this kernel has no br_netfilter (modprobe br_netfilter): %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// subject is a Service proxy under test, at work in one family on the lab's node. It starts without objects.
type subject interface {
	// Configure says how the node is and how the proxy is to work.
	Configure(context.Context, nodeConfig) error
	// Set brings objects in, changes them or takes them away, and returns when that is in force.
	Set(context.Context, []change) error
	// Restart ends the proxy and starts it again, without a clean-up between.
	Restart(context.Context) error
	// Settled tells what is not in the kernel as it should be.
	Settled(context.Context) error
	// Leftovers lists what is still in the kernel of objects that are gone, when no objects exist.
	Leftovers(context.Context) ([]string, error)
	// Close ends the proxy.
	Close() error
}

// nodeConfig is the node and the proxy's settings, in one family.
type nodeConfig struct {
	proxy.Node
	proxy.Settings
}

// defaultConfig is what a case runs with that says nothing else.
func defaultConfig(l *lab.Lab, f proxy.Family) nodeConfig {
	addrs := l.Node.Addrs(f)
	var c nodeConfig
	c.Family = f
	c.Name = "node"
	c.Zone = "zone-a"
	c.Addrs = addrs
	c.NodePortAddrs = addrs[:1]
	c.Detection.Mode = proxy.DetectClusterCIDR
	c.Detection.PodCIDRs = append(c.Detection.PodCIDRs, lab.ClusterCIDRs[f])
	c.ServiceCIDRs = append(c.ServiceCIDRs, lab.ServiceCIDRs[f])
	return c
}
