package kube

import (
	"os/exec"
	"strings"
	"testing"
)

// forbidden are packages that must not be in the binary, and why.
var forbidden = map[string]string{
	"k8s.io/client-go/kubernetes":         "the full clientset: every kind of the API, some 14 MB of binary and 11 MB of memory",
	"k8s.io/client-go/informers":          "needs the full clientset, and keeps every object",
	"k8s.io/client-go/listers":            "reads from informers' stores",
	"k8s.io/client-go/dynamic":            "decodes into maps: several times the memory of typed objects",
	"k8s.io/client-go/tools/record":       "the event broadcaster needs the full clientset's types; an event is one POST",
	"k8s.io/client-go/tools/events":       "as tools/record",
	"k8s.io/kubernetes":                   "kube-proxy itself",
	"k8s.io/component-base":               "brings client_golang and OpenTelemetry",
	"github.com/prometheus/client_golang": "2.4 MB, for what a few counters need",
	"net/http/pprof":                      "registers itself on the default mux, and keeps the profiler in",
	"go.opentelemetry.io":                 "traces nobody collects",
	"google.golang.org/grpc":              "nothing speaks it",
	"github.com/vishvananda/netlink":      "another netlink stack beside the one in use",
}

func TestForbiddenImports(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-deps", "sluice", "sluice/agent/kube").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	deps := strings.Fields(string(out))
	if len(deps) < 100 {
		t.Fatalf("only %d packages: %q", len(deps), deps)
	}
	for _, dep := range deps {
		for path, why := range forbidden {
			if dep == path || strings.HasPrefix(dep, path+"/") {
				t.Errorf("%s is imported: %s", dep, why)
			}
		}
	}
}
