package health

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"sluice/agent/httpserver"
	"sluice/proxy"
)

// Servers serve the healthCheckNodePorts of one family. Load balancers ask there
// whether this node has endpoints of a Service with externalTrafficPolicy: Local.
type Servers struct {
	options Options
	healthy func() bool

	mu        sync.Mutex
	listeners map[netip.AddrPort]*listener
	failed    map[netip.AddrPort]string // the error that was logged for an address that cannot be had
	conflicts map[uint16]string         // what was logged about ports that several Services claim
	running   sync.WaitGroup
}

// listener is one server. What it says can change while it runs.
type listener struct {
	server *http.Server
	check  atomic.Pointer[serviceCheck]
}

type serviceCheck struct {
	name           proxy.ServiceName
	localEndpoints int
}

// NewServers returns Servers that serve nothing yet. healthy tells whether the
// proxy as a whole is; see Tracker.Healthy. Retry of the options is not used: Sync tries again.
func NewServers(healthy func() bool, o Options) *Servers {
	return &Servers{
		options: o.WithDefaults(), healthy: healthy,
		listeners: map[netip.AddrPort]*listener{},
		failed:    map[netip.AddrPort]string{},
		conflicts: map[uint16]string{},
	}
}

// Sync serves these checks, each at all the given addresses, and nothing else;
// an unspecified address (0.0.0.0 or ::) stands for all of its family. What was
// served before and still is goes on undisturbed. An address and port that
// cannot be had are logged once and tried again at the next Sync. Of Services that claim the
// same port the first by name has it. ctx is for the opening of listeners only.
func (s *Servers) Sync(ctx context.Context, checks map[proxy.ServiceName]proxy.HealthCheck, addrs []netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	wanted := map[netip.AddrPort]*serviceCheck{}
	for port, check := range s.byPort(checks) {
		for _, a := range addrs {
			wanted[netip.AddrPortFrom(a, port)] = check
		}
	}
	for at, l := range s.listeners {
		if wanted[at] == nil {
			l.server.Close()
			delete(s.listeners, at)
		}
	}
	maps.DeleteFunc(s.failed, func(at netip.AddrPort, _ string) bool { return wanted[at] == nil })
	for at, check := range wanted {
		if l := s.listeners[at]; l != nil {
			l.check.Store(check)
			continue
		}
		s.listen(ctx, at, check)
	}
}

// byPort settles who has which port.
func (s *Servers) byPort(checks map[proxy.ServiceName]proxy.HealthCheck) map[uint16]*serviceCheck {
	ports := map[uint16]*serviceCheck{}
	conflicts := map[uint16]string{}
	for _, name := range slices.SortedFunc(maps.Keys(checks), proxy.ServiceName.Compare) {
		hc := checks[name]
		if first := ports[hc.Port]; first != nil {
			conflict := fmt.Sprintf("%s and %s", first.name, name)
			if s.conflicts[hc.Port] != conflict {
				s.options.Log.Warn("two Services claim one healthCheckNodePort; the first has it", "port", hc.Port, "services", conflict)
			}
			conflicts[hc.Port] = conflict
			continue
		}
		ports[hc.Port] = &serviceCheck{name: name, localEndpoints: hc.LocalEndpoints}
	}
	s.conflicts = conflicts
	return ports
}

func (s *Servers) listen(ctx context.Context, at netip.AddrPort, check *serviceCheck) {
	network := "tcp4"
	if at.Addr().Is6() {
		network = "tcp6" // so that :: does not take the port of 0.0.0.0 as well
	}
	log := s.options.Log.With("service", check.name.String(), "address", at.String())
	tcp, err := s.options.Listen(ctx, network, at.String())
	if err != nil {
		err = httpserver.BindError(err)
		if s.failed[at] != err.Error() {
			log.Error("healthCheckNodePort is not served; tried again at the next change", "error", err)
			s.failed[at] = err.Error()
		}
		return
	}
	delete(s.failed, at)
	l := &listener{}
	l.check.Store(check)
	l.server = httpserver.New(s.handler(l), s.options.Log)
	s.listeners[at] = l
	s.running.Go(func() {
		if err := httpserver.Serve(l.server, tcp); !errors.Is(err, http.ErrServerClosed) {
			log.Error("healthCheckNodePort is no longer served; tried again at the next change", "error", err)
			l.server.Close()
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.listeners[at] == l {
				delete(s.listeners, at)
			}
		}
	})
}

// handler answers every request, whatever its path, in the format of kube-proxy.
func (s *Servers) handler(l *listener) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		check, healthy := l.check.Load(), s.healthy()
		setHeaders(w)
		w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(check.localEndpoints))
		if check.localEndpoints == 0 || !healthy {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprintf(w, "{\n\t\"service\": {\n\t\t\"namespace\": %q,\n\t\t\"name\": %q\n\t},\n\t\"localEndpoints\": %d,\n\t\"serviceProxyHealthy\": %t\n}",
			check.name.Namespace, check.name.Name, check.localEndpoints, healthy)
	})
}

// Close ends all servers.
func (s *Servers) Close() {
	s.Sync(context.Background(), nil, nil)
	s.running.Wait()
}
