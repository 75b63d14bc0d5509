// Command demo shows sluice at work: it builds a small cluster's network out of
// throw-away network namespaces, runs the agent on the example manifests, sends requests, and
// tells what became of them and which rules did it. It leaves nothing behind.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"sluice/proxy"
	"sluice/test/lab"
)

func main() {
	sluice := flag.String("sluice", "bin/sluice", "the binary to show")
	manifests := flag.String("manifests", "examples", "the directory of manifests")
	flag.Parse()
	code, entered, err := lab.Enter()
	if !entered && err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		err = run(ctx, *sluice, *manifests)
		if ctx.Err() != nil {
			err = errors.New("interrupted")
		}
		stop()
		fmt.Println("All of it is gone now: the agent, its rules and the namespaces.")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		code = 1
	}
	os.Exit(code)
}

func run(ctx context.Context, sluice, manifests string) error {
	l, err := lab.New(ctx, lab.Options{})
	if err != nil {
		return err
	}
	defer l.Close()
	fmt.Print(`This network exists in network namespaces, for as long as the demo runs:

    far1 10.244.2.11       pod1 10.244.1.11
    far2 10.244.2.12       pod2 10.244.1.12
         |                 pod3 10.244.1.13
         |                      |
       node2                  node 192.168.50.1       outside 192.168.50.100
         |______________________|__________________________|

`)
	agent, err := startAgent(l.Node, sluice, manifests)
	if err != nil {
		return err
	}
	defer agent.stop()
	if err := agent.awaitReady(ctx); err != nil {
		return err
	}
	d := &demo{lab: l}
	for _, scene := range scenes {
		if err := d.play(ctx, scene); err != nil {
			return fmt.Errorf("%w\nthe agent's log:\n%s", err, agent.log())
		}
	}
	return nil
}

// scene is some requests to one address, and what is to be seen.
type scene struct {
	title    string
	from, to string
	// times is how many requests are made; again is another address that gets as many.
	times int
	again string
	// expect says what must come of it, with the hosts that may be reached.
	kind  lab.Kind
	hosts string
	// same is true if all requests are to reach the same endpoint.
	same bool
	note string
}

var scenes = []scene{
	{
		title: "A ClusterIP spreads connections over the endpoints of its Service",
		from:  "pod1", to: "10.96.0.10:80", times: 12, again: "[fd00:96::10]:80",
		kind: lab.Reached, hosts: "pod1 pod2 pod3",
		note: "Pods are seen by their own address. Only where pod1 reaches itself the node puts in its own,\n" +
			"so that the answer comes back the same way.",
	},
	{
		title: "A NodePort serves clients outside the cluster, by endpoints on any node",
		from:  "outside", to: "192.168.50.1:30080", times: 8,
		kind: lab.Reached, hosts: "pod2 far1",
		note: "The endpoints see an address of the node, through which the answers have to come back.",
	},
	{
		title: "A load balancer's address with externalTrafficPolicy Local keeps the client's address",
		from:  "outside", to: "203.0.113.10:443", times: 4,
		kind: lab.Reached, hosts: "pod3",
		note: "Its endpoint far2 is on another node, and so not for clients that come to this one.",
	},
	{
		title: "With session affinity a client keeps its endpoint",
		from:  "outside", to: "10.96.0.40:80", times: 6,
		kind: lab.Reached, hosts: "pod1 pod2 pod3", same: true,
		note: "What the first connection chose was learned into the map affinity, and held for the others.",
	},
	{
		title: "A Service without endpoints refuses at once",
		from:  "pod1", to: "10.96.0.50:80", times: 1,
		kind: lab.Refused,
	},
}

type demo struct {
	lab    *lab.Lab
	number int
}

func (d *demo) play(ctx context.Context, s scene) error {
	d.number++
	fmt.Printf("%d. %s.\n\n", d.number, s.title)
	targets := []string{s.to}
	if s.again != "" {
		targets = append(targets, s.again)
	}
	for _, to := range targets {
		if err := d.request(ctx, s, netip.MustParseAddrPort(to)); err != nil {
			return err
		}
	}
	if s.note != "" {
		fmt.Printf("%s\n\n", indent(s.note))
	}
	listing, err := d.lab.Node.Run(ctx, "", "nft", "list", "table", "ip", "sluice")
	if err != nil {
		return err
	}
	to := netip.MustParseAddrPort(s.to)
	client := d.lab.Host(s.from).Addr(proxy.IPv4)
	fmt.Printf("   The rules that did it, from `nft list table ip sluice`:\n\n%s\n", rulesFor(listing, to, client))
	return nil
}

func (d *demo) request(ctx context.Context, s scene, to netip.AddrPort) error {
	from := d.lab.Host(s.from)
	fmt.Printf("   %s sends %s to %s:\n", s.from, plural(s.times, "request"), to)
	probe := lab.Probe{From: from, To: to, Protocol: proxy.TCP}
	var order []string
	counts := map[string]int{}
	start := time.Now()
	for range s.times {
		result := probe.Send(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		host, _, _ := strings.Cut(result.Endpoint, ":")
		if result.Kind != s.kind || s.kind == lab.Reached && !strings.Contains(" "+s.hosts+" ", " "+host+" ") {
			return fmt.Errorf("a request from %s to %s was to be %s %s, and met: %s", s.from, to, s.kind, s.hosts, result)
		}
		text := string(result.Kind)
		if result.Kind == lab.Reached {
			text = fmt.Sprintf("reached %s, which saw %s as the client", result.Endpoint, result.Source)
		}
		if counts[text] == 0 {
			order = append(order, text)
		}
		counts[text]++
	}
	if s.same && len(order) != 1 {
		return fmt.Errorf("all requests from %s to %s were to reach the same endpoint, and: %v", s.from, to, counts)
	}
	for _, text := range order {
		if s.times == 1 {
			fmt.Printf("      %s after %s\n", text, time.Since(start).Round(10*time.Microsecond))
			continue
		}
		fmt.Printf("     %2d %s\n", counts[text], text)
	}
	fmt.Println()
	return nil
}

func plural(n int, what string) string {
	if n == 1 {
		return "one " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func indent(text string) string { return "   " + strings.ReplaceAll(text, "\n", "\n   ") }
