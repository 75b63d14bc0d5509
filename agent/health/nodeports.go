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
	limits  Limits
	conns   *httpserver.Limit // nil: none
	healthy func() bool

	mu        sync.Mutex
	listeners map[netip.AddrPort]*listener
	failed    map[netip.AddrPort]failure // addresses that cannot be had
	over      bool                       // there are more than Limits.Listeners
	conflicts map[uint16]string          // what was logged about ports that several Services claim
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

// failure is why an address cannot be had, as it was logged.
type failure struct {
	service proxy.ServiceName
	reason  string
}

// Limits bound what Services, and those who connect, can make Servers open.
type Limits struct {
	// Listeners at a time; 0 is no limit.
	Listeners int
	// Conns at a time, over all listeners; 0 is no limit but that of each listener.
	Conns int
}

// NewServers returns Servers that serve nothing yet. healthy tells whether the
// proxy as a whole is; see Tracker.Healthy. Retry of the options is not used: Sync tries again.
func NewServers(healthy func() bool, limits Limits, o Options) *Servers {
	s := &Servers{
		options: o.WithDefaults(), limits: limits, healthy: healthy,
		listeners: map[netip.AddrPort]*listener{},
		failed:    map[netip.AddrPort]failure{},
		conflicts: map[uint16]string{},
	}
	if limits.Conns > 0 {
		s.conns = httpserver.NewLimit(limits.Conns)
	}
	return s
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
	maps.DeleteFunc(s.failed, func(at netip.AddrPort, _ failure) bool { return wanted[at] == nil })
	over := 0
	for _, at := range slices.SortedFunc(maps.Keys(wanted), netip.AddrPort.Compare) {
		check := wanted[at]
		if l := s.listeners[at]; l != nil {
			l.check.Store(check)
		} else if most := s.limits.Listeners; most > 0 && len(s.listeners) >= most {
			over++
			s.failed[at] = failure{check.name, fmt.Sprintf("%d others are served, the most that fit into this process' file descriptors", most)}
		} else {
			s.listen(ctx, at, check)
		}
	}
	if over > 0 && !s.over {
		s.options.Log.Error("healthCheckNodePorts are not served: there are too many", "served", len(s.listeners), "not served", over)
	}
	s.over = over > 0
}

// Failures tells why a Service's healthCheckNodePort is not served, for each of which that is so.
func (s *Servers) Failures() map[proxy.ServiceName]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	failures := map[proxy.ServiceName]string{}
	for at, f := range s.failed {
		text := fmt.Sprintf("healthCheckNodePort %d is not served at %v: %s", at.Port(), at.Addr(), f.reason)
		if other, known := failures[f.service]; !known || text < other { // one says enough, always the same
			failures[f.service] = text
		}
	}
	return failures
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
		if now := (failure{check.name, err.Error()}); s.failed[at] != now {
			log.Error("healthCheckNodePort is not served; tried again at the next change", "error", err)
			s.failed[at] = now
		}
		return
	}
	delete(s.failed, at)
	l := &listener{}
	l.check.Store(check)
	l.server = httpserver.New(s.handler(l), s.options.Log)
	if s.conns != nil {
		tcp = s.conns.Listener(tcp)
	}
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
