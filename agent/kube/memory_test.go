package kube

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice/agent/source"
	"sluice/test/procfs"
)

// memoryServer is the environment variable that makes the test binary a process that
// follows the server of a kubeconfig into nothing, and prints its memory.
const memoryServer = "SLUICE_TEST_MEMORY_SERVER"

// counter is a sink that counts and forgets.
type counter struct {
	sink
	slices int
	ready  chan struct{}
}

func (c *counter) Apply(_ context.Context, changes []source.Change) error {
	if changes[0].Kind == source.EndpointSlice {
		c.slices += len(changes)
	}
	return nil
}

func (c *counter) Replace(_ context.Context, kind source.Kind, exist map[source.Name]struct{}) error {
	if kind == source.EndpointSlice && len(exist) != c.slices {
		panic(fmt.Sprint(len(exist), " exist of ", c.slices))
	}
	return nil
}

func (c *counter) Synced() { close(c.ready) }

func followForMemory() int {
	debug.SetGCPercent(50) // as the agent has it
	runtime.GC()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	c := &counter{ready: make(chan struct{})}
	s := New(Options{Kubeconfig: os.Getenv(memoryServer), NodeName: "pi"})
	go func() { _ = s.Run(ctx, c) }()
	begun, before := time.Now(), heapBytes()
	peak := before
	for {
		select {
		case <-ctx.Done():
			fmt.Println("not synced")
			return 1
		case <-time.After(time.Millisecond):
			peak = max(peak, heapBytes())
			continue
		case <-c.ready:
		}
		break
	}
	took := time.Since(begun)
	debug.FreeOSMemory()
	m, err := procfs.Memory(os.Getpid())
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(c.slices, before, peak, heapBytes(), m["VmHWM"]>>10, m["RssAnon"]>>10, took.Milliseconds(), runtime.NumGoroutine())
	return 0
}

// heapBytes is what live and unswept objects take.
func heapBytes() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// TestMemory: what a list needs does not grow with what its objects hold. Of 10,000 slices with 10
// endpoints each (some 25 MB when they are decoded) only the names are kept until the list is complete.
func TestMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("sends 20,000 slices")
	}
	const slices, endpoints = 10_000, 10
	// Of heap, over the start. It grows by some 9 MiB on an idle machine; on a busy one more is allocated while the garbage
	// collector works.
	const budget = 16 << 20
	r := newRig(t)
	for i := range slices {
		r.api.put(bigSlice(i, endpoints))
	}
	r.api.with(func() { r.api.history = nil })
	r.write(r.kubeconfig, r.config(r.ca.valid(t, "system:kube-proxy")))
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), memoryServer+"="+r.kubeconfig)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var n, before, peak, after, hwm, anon, ms, goroutines uint64
	if _, err := fmt.Sscan(string(out), &n, &before, &peak, &after, &hwm, &anon, &ms, &goroutines); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Logf("%d slices in %d ms; heap %d KiB at start, %d at most, %d after; peak RSS %d KiB, anonymous after %d KiB; %d goroutines",
		n, ms, before>>10, peak>>10, after>>10, hwm, anon, goroutines)
	if n != slices {
		t.Errorf("%d slices came, want %d", n, slices)
	}
	if peak-before > budget {
		t.Errorf("the heap grew by %d KiB, want at most %d", (peak-before)>>10, budget>>10)
	}
}

func bigSlice(i, endpoints int) *discoveryv1.EndpointSlice {
	s := slice(fmt.Sprintf("service-%05d-abcde", i), map[string]string{
		"kubernetes.io/service-name": fmt.Sprintf("service-%05d", i), "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
	})
	s.UID = "00000000-0000-0000-0000-000000000000"
	s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: "service", UID: s.UID}}
	s.ManagedFields[0].FieldsV1 = metav1.NewFieldsV1(`{"f:addressType":{},"f:endpoints":{},"f:metadata":{"f:annotations":{},"f:generateName":{},"f:labels":{}},"f:ports":{}}`)
	s.Endpoints = nil
	for e := range endpoints {
		ready, node := true, fmt.Sprintf("node-%d", e)
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.%d.%d.%d", 42+e, i/250, 1+i%250)}, NodeName: &node,
			Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &ready},
		})
	}
	return s
}
