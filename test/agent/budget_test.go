package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice/agent/status"
	"sluice/test/lab"
	"sluice/test/rig"
)

// The budget: anonymous memory with 100 Services of 3 endpoints each, and what many changes may add to it for good.
const (
	budget      = 8_000_000
	budgetSlack = 1_000_000
)

func TestBudget(t *testing.T) {
	// Not beside other tests: what it measures is to be compared.
	const services = 100
	p := rig.NewProcess(t, lab.NewTestNamespace(t))
	for i := range services {
		p.Write(fmt.Sprintf("web-%d.yaml", i), numbered(i, 0))
	}
	p.Run()
	settle := func() (anonymous int64, descriptors []string, threads int) {
		t.Helper()
		p.Await(rig.Patience, "all Services", func(s status.Status) bool {
			return rig.Settled(s) && s.Services == services && s.Families[0].Endpoints == 3*services
		})
		time.Sleep(500 * time.Millisecond)
		anonymous = p.Memory("RssAnon")
		return anonymous, openFiles(t, p.Cmd.Process.Pid), p.Threads()
	}
	anonymous, descriptors, threads := settle()
	t.Logf("%d Services x 3 endpoints: %.2f MB anonymous, %.2f MB RSS, %d file descriptors, %d threads",
		services, float64(anonymous)/1e6, float64(p.Memory("VmRSS"))/1e6, len(descriptors), threads)
	if anonymous > budget {
		t.Errorf("the agent takes %.2f MB of anonymous memory, more than %.2f MB", float64(anonymous)/1e6, budget/1e6)
	}

	const changes = 1000
	begun := time.Now()
	for i := range changes {
		p.Write(fmt.Sprintf("web-%d.yaml", i%services), numbered(i%services, i+1))
		time.Sleep(2 * time.Millisecond)
	}
	took := time.Since(begun)
	after, descriptorsAfter, threadsAfter := settle()
	t.Logf("%d changes in %v: %.2f MB anonymous, %d file descriptors, %d threads", changes, took.Round(time.Millisecond), float64(after)/1e6, len(descriptorsAfter), threadsAfter)
	if after > budget+budgetSlack {
		t.Errorf("after %d changes the agent takes %.2f MB of anonymous memory, more than %.2f MB", changes, float64(after)/1e6, (budget+budgetSlack)/1e6)
	}
	if len(descriptorsAfter) > len(descriptors)+5 {
		t.Errorf("after %d changes the agent has these files open:\n%s\nbefore:\n%s", changes, strings.Join(descriptorsAfter, "\n"), strings.Join(descriptors, "\n"))
	}
	if threadsAfter > threads+5 {
		t.Errorf("after %d changes the agent has %d threads, before %d", changes, threadsAfter, threads)
	}
	p.Stop()
}

// openFiles is what the file descriptors of a process stand for, in the order of their numbers' text.
func openFiles(t *testing.T, pid int) []string {
	t.Helper()
	folder := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	list, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, d := range list {
		target, err := os.Readlink(filepath.Join(folder, d.Name()))
		if err != nil { // closed since
			continue
		}
		files = append(files, d.Name()+" "+target)
	}
	return files
}

// numbered is a Service with three endpoints. The first one's address depends on the generation.
func numbered(n, generation int) string {
	var b strings.Builder
	fmt.Fprintf(&b, `apiVersion: v1
kind: Service
metadata: {name: web-%d}
spec:
  clusterIP: 10.96.1.%d
  ports:
  - {name: t, port: 80}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: web-%[1]d-1
  labels: {kubernetes.io/service-name: web-%[1]d}
addressType: IPv4
ports:
- {name: t, port: 8080}
endpoints:
`, n, n)
	for i := range 3 {
		fmt.Fprintf(&b, "- {addresses: [10.244.%d.%d], nodeName: node}\n", n, 10*i+1+(1-min(i, 1))*(generation%9))
	}
	return b.String()
}
