package agent

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"sluice/agent/health"
	"sluice/proxy"
)

// However many ports a Service has, the log has a line for it and not for each of them.
func TestPlanLog(t *testing.T) {
	var out bytes.Buffer
	p := newProxier(proxy.IPv4, nil, nil, health.NewTracker(time.Minute, time.Now), slog.New(slog.NewTextHandler(&out, nil)))
	l := &loop{proxiers: []*proxier{p}}
	plan := func(name string, created int64, ports int) *proxy.ServicePlan {
		s := &proxy.ServicePlan{Name: proxy.ServiceName{Namespace: "default", Name: name}, Created: created}
		for i := range ports {
			port := proxy.ServicePortName{ServiceName: s.Name, Port: fmt.Sprint("p", i)}
			s.Frontends = append(s.Frontends, proxy.FrontendRoute{
				Frontend: proxy.Frontend{Addr: netip.MustParseAddr("192.0.2.1"), Port: uint16(i + 1), Protocol: proxy.TCP},
				Route:    &proxy.Route{Port: port},
			})
			s.Ignored = append(s.Ignored, fmt.Sprintf("port %q is not served", port.Port))
		}
		return s
	}
	step := func(what string, s *proxy.ServicePlan, want ...string) {
		t.Helper()
		out.Reset()
		l.logIgnored(p, nil, s)
		p.state.Set(s.Name, s)
		l.logConflicts()
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		if out.Len() == 0 {
			lines = nil
		}
		if len(lines) != len(want) {
			t.Fatalf("%s: %d lines in the log, want %d: %.1000s", what, len(lines), len(want), out.String())
		}
		for i := range want {
			if !strings.Contains(lines[i], want[i]) {
				t.Errorf("%s: %s\nwant %s", what, lines[i], want[i])
			}
		}
	}
	step("the older one", plan("old", 1, 1000), "p2\\\" is not served; and 997 more")
	step("another with its addresses", plan("new", 2, 500),
		"and 497 more", "192.0.2.1:3/TCP of default/new:p2 belongs to default/old:p2; and 497 more")
	step("the same again", plan("new", 2, 500))
	step("one port more", plan("new", 2, 501), `"port \"p500\" is not served"`, `"192.0.2.1:501/TCP of default/new:p500 belongs to default/old:p500"`)
	step("most ports less", plan("new", 2, 1), "conflict ended")
}
