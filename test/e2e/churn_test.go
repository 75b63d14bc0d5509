package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice/agent/status"
	"sluice/test/cluster"
	"sluice/test/rig"
)

// churnTime is the length of testChurn.
var churnTime = flag.Duration("churn", 20*time.Second, "how long objects change in the test of churn; 173s have the changes of a day")

const (
	// churnRate is how many changes there are in a second. On a busy node there is one in 5 s, so
	// that time passes 500 times as fast; what the agent does at intervals it does as much more often.
	churnRate, fasterBy = 100, 500
	// Services that are there all the time, their endpoints, and Services that come and go.
	steadyServices, steadyEndpoints, passingServices = 50, 10, 20
)

// testChurn changes objects all the time, while now and then connections are cut, the server is restarted, and the agent gets
// other credentials. Nothing that the agent holds may grow.
func testChurn(e *env) {
	e.apply(e.service("web", "vip2"))
	e.apply(e.slices("web", "pod2")...)
	c := &churn{env: e, endpoints: make([][]string, steadyServices), there: make([]bool, passingServices)}
	c.begin()
	for option, interval := range map[string]time.Duration{
		"--cache-commit-interval": 5 * time.Second, "--sync-period": 30 * time.Second, "--min-sync-period": 100 * time.Millisecond,
	} {
		e.Args = append(e.Args, option, (interval / fasterBy).String())
	}
	e.Run()
	clients := e.Connect(20*time.Millisecond, "pod1 tcp vip2:80")
	ctx, cancel := context.WithCancel(e.T.Context())
	sampled := make(chan []sample)
	go func() {
		defer close(sampled) // after a failure, too
		sampled <- e.sample(ctx)
	}()

	disturbances := []func(){
		func() { e.must(e.link.Reset(e.T.Context())) }, c.newCertificate,
		func() { e.must(e.link.Reset(e.T.Context())) }, c.newToken,
	}
	period := max(*churnTime/16, 4*time.Second)
	for begun, i := time.Now(), 0; time.Since(begun) < *churnTime; i++ {
		c.change(period)
		disturbances[i%len(disturbances)]()
	}
	c.change(period)
	cancel()
	samples := <-sampled
	c.checkRules()
	e.AwaitNoProblem(inStep)
	rig.EndUndisturbed(e.T, clients, "pod2:8080")
	samples = samples[len(samples)/10:] // the beginning is not like the rest
	third := len(samples) / 3
	if third < 10 {
		e.T.Fatalf("%d samples are too few", len(samples))
	}
	compareSamples(e, samples[:third], samples[len(samples)-third:])
	e.T.Logf("%d changes, which a day has at one in %v", c.changes, (24 * time.Hour / time.Duration(c.changes)).Round(time.Second/10))
	c.end()
}

// churn is the objects that change.
type churn struct {
	*env
	endpoints [][]string // of the steady Services
	there     []bool     // of the passing Services
	changes   int
	rotations int
}

func (c *churn) begin() {
	c.T.Helper()
	var all []cluster.Object
	for i := range c.endpoints {
		for n := range steadyEndpoints {
			c.endpoints[i] = append(c.endpoints[i], fmt.Sprintf("10.244.%d.%d", 100+i, 1+n))
		}
		all = append(all, steadyService(i, 80), c.slice(i))
	}
	c.each(all, func(obj cluster.Object) error { return c.cluster.Create(c.T.Context(), obj) })
}

// end deletes them.
func (c *churn) end() {
	c.T.Helper()
	var all []cluster.Object
	for i := range c.endpoints {
		all = append(all, steadyService(i, 80), c.slice(i))
	}
	for i, there := range c.there {
		if there {
			all = append(all, passingService(i))
		}
	}
	c.each(all, func(obj cluster.Object) error { return c.cluster.Delete(c.T.Context(), obj) })
}

func serviceAt(name, ip string, port int32) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{ClusterIP: ip, Ports: []corev1.ServicePort{{Port: port}}}}
}

func steadyService(i int, port int32) *corev1.Service {
	return serviceAt(fmt.Sprint("steady-", i), fmt.Sprint("10.96.100.", 1+i), port)
}

func passingService(i int) *corev1.Service {
	return serviceAt(fmt.Sprint("passing-", i), fmt.Sprint("10.96.101.", 1+i), 80)
}

func (c *churn) slice(i int) *discoveryv1.EndpointSlice {
	name := fmt.Sprint("steady-", i)
	s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Port: new(int32(8080))}}}
	for _, a := range c.endpoints[i] {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}, NodeName: new("node2")})
	}
	return s
}

// change changes objects at churnRate for some time: most often an endpoint goes and another comes.
func (c *churn) change(lasts time.Duration) {
	c.T.Helper()
	ticks := time.NewTicker(time.Second / churnRate)
	defer ticks.Stop()
	group, ctx := errgroup.WithContext(c.T.Context())
	group.SetLimit(4)
	for end := time.Now().Add(lasts); time.Now().Before(end) && ctx.Err() == nil; c.changes++ {
		<-ticks.C
		n := c.changes
		act, obj := c.cluster.Apply, cluster.Object(nil)
		switch i := n / 20 % passingServices; n % 20 {
		case 0:
			obj = passingService(i)
			if c.there[i] = !c.there[i]; !c.there[i] {
				act = c.cluster.Delete
			}
		case 1:
			obj = steadyService(n/20%steadyServices, 80+int32(n/20/steadyServices%2))
		default:
			i := n * 7 % steadyServices
			c.endpoints[i] = append(c.endpoints[i][1:], fmt.Sprintf("10.244.%d.%d", 150+n/250%100, 1+n%250))
			obj = c.slice(i)
		}
		group.Go(func() error { return act(ctx, obj) })
	}
	c.must(group.Wait())
}

// newCertificate gives the agent another client certificate.
func (c *churn) newCertificate() {
	c.T.Helper()
	cert, err := c.cluster.CA.Valid(cluster.ProxyUser)
	c.must(err)
	c.writeKubeconfig(c.cluster.CertKubeconfig(cert))
}

// newToken restarts the server with another token, and gives that to the agent.
func (c *churn) newToken() {
	c.T.Helper()
	c.rotations++
	token := fmt.Sprint("token-", c.rotations)
	c.must(c.cluster.SetTokens(cluster.ProxyToken, token))
	c.restartServer()
	c.writeKubeconfig(c.cluster.TokenKubeconfig(token))
}

// checkRules compares the rules with the objects, when the agent is in step.
func (c *churn) checkRules() {
	c.T.Helper()
	services, endpoints := 1, []string{}
	for _, there := range c.there {
		if there {
			services++
		}
	}
	for _, list := range c.endpoints {
		services++
		endpoints = append(endpoints, list...)
	}
	c.Await(inStep, "all Services", func(s status.Status) bool { return rig.Settled(s) && s.Families[0].Services == services+1 }) // and default/kubernetes
	missing := func() (list []string) {
		text := c.OnNode("nft", "list", "map", "ip", "sluice", "endpoints")
		for _, a := range endpoints {
			if !strings.Contains(text, " : "+a+" . 8080") {
				list = append(list, a)
			}
		}
		return list
	}
	c.Eventually(inStep, "the rules have all endpoints", func() bool { return len(missing()) == 0 })
}

// sample is what the agent holds at one time.
type sample struct{ anonymous, rss, goroutines, files, cache float64 }

// amounts are what is compared: how much more the last samples may be than the first, in parts of it and beside that.
var amounts = []struct {
	name         string
	of           func(sample) float64
	part, beside float64
}{
	{"anonymous memory (MB)", func(s sample) float64 { return s.anonymous / 1e6 }, 0.1, 1},
	{"goroutines", func(s sample) float64 { return s.goroutines }, 0, 4},
	{"file descriptors", func(s sample) float64 { return s.files }, 0, 2},
	{"cache file (KB)", func(s sample) float64 { return s.cache / 1e3 }, 0.25, 200},
}

// sample looks at the agent until ctx ends.
func (e *env) sample(ctx context.Context) (list []sample) {
	ticks := time.NewTicker(250 * time.Millisecond)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return list
		case <-ticks.C:
		}
		var s sample
		if file, err := os.Stat(filepath.Join(e.Dir, "objects.db")); err == nil {
			s.cache = float64(file.Size())
		}
		s.anonymous, s.files = float64(e.Memory("RssAnon")), float64(e.Files())
		s.goroutines = rig.Metric(e.T, e.Lab.Node, "go_goroutines")
		list = append(list, s)
	}
}

func compareSamples(e *env, first, last []sample) {
	e.T.Helper()
	for _, a := range amounts {
		of := func(samples []sample) (median, most float64) {
			var values []float64
			for _, s := range samples {
				values = append(values, a.of(s))
			}
			slices.Sort(values)
			return values[len(values)/2], values[len(values)-1]
		}
		before, mostBefore := of(first)
		after, mostAfter := of(last)
		e.T.Logf("%s: %.1f, at most %.1f, in the first third; %.1f, at most %.1f, in the last", a.name, before, mostBefore, after, mostAfter)
		if after > before*(1+a.part)+a.beside {
			e.T.Errorf("%s grew", a.name)
		}
	}
}
