package status

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"sluice/proxy"
)

// view is one way in which clients come to a Service port, with the endpoints
// that new connections on it go to.
type view struct {
	family proxy.Family
	// clients says who comes this way.
	clients string
	// localOnly is true where a traffic policy keeps connections on this node.
	localOnly bool
	slots     []netip.AddrPort
	// holder is the Service port that has the address in place of this one; nil where this one has it.
	holder *proxy.ServicePortName
}

// Lost are the frontends that Service ports claim and others have. The keys have no Holder.
type Lost map[proxy.Conflict]proxy.ServicePortName

// NewLost makes it of all conflicts.
func NewLost(conflicts []proxy.Conflict) Lost {
	lost := make(Lost, len(conflicts))
	for _, c := range conflicts {
		lost[proxy.Conflict{Frontend: c.Frontend, Loser: c.Loser}] = c.Holder
	}
	return lost
}

// portKey names a port of a Service, or of one of its slices.
type portKey struct {
	name     string
	protocol corev1.Protocol
}

// byPort sorts frontends by the ports that they belong to. A Service can have tens of thousands of both.
func byPort(plans []*proxy.ServicePlan) map[portKey][]*proxy.FrontendRoute {
	all := map[portKey][]*proxy.FrontendRoute{}
	for _, plan := range plans {
		if plan == nil {
			continue
		}
		for i := range plan.Frontends {
			f := &plan.Frontends[i]
			key := portKey{f.Route.Port.Port, corev1.Protocol(f.Route.Port.Protocol.String())}
			all[key] = append(all[key], f)
		}
	}
	return all
}

// viewsOf lists the ways to one Service port, which has these frontends, each once.
func viewsOf(svc *corev1.Service, lost Lost, frontends []*proxy.FrontendRoute) []view {
	internalLocal := ptr.Deref(svc.Spec.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster) == corev1.ServiceInternalTrafficPolicyLocal
	var views []view
	add := func(v view, pool *proxy.Pool) {
		if pool != nil {
			v.slots = pool.Slots
		}
		// All external addresses of a port are alike.
		if !slices.ContainsFunc(views, func(o view) bool { return o.family == v.family && o.clients == v.clients }) {
			views = append(views, v)
		}
	}
	for _, f := range frontends {
		r := f.Route
		family := proxy.FamilyOf(f.Addr)
		if holder, is := lost[proxy.Conflict{Frontend: f.Frontend, Loser: r.Port}]; is {
			clients := "at " + f.Frontend.String()
			if r.Kind == proxy.NodePort {
				clients = fmt.Sprintf("at NodePort %d", f.Port)
			}
			add(view{family: family, clients: clients, holder: &holder}, nil)
			continue
		}
		switch {
		case r.Kind == proxy.ClusterIP:
			add(view{family: family, clients: "at the ClusterIP", localOnly: internalLocal}, r.Pool)
		case r.LocalPool == nil:
			add(view{family: family, clients: "at external addresses"}, r.Pool)
		default:
			add(view{family: family, clients: "at external addresses for pods and this node"}, r.Pool)
			add(view{family: family, clients: "at external addresses for others", localOnly: true}, r.LocalPool)
		}
	}
	return views
}

// use fills in Used and Reason.
func (e *Endpoint) use(views []view) {
	family := proxy.FamilyOf(e.Address.Addr())
	total := 0
	var missing []view
	for _, v := range views {
		if v.family != family {
			continue
		}
		total++
		if !slices.Contains(v.slots, e.Address) {
			missing = append(missing, v)
		}
	}
	switch {
	case total == 0:
		e.Used, e.Reason = UsedNo, "the Service port has no "+family.String()+" address"
	case len(missing) == 0:
		e.Used = UsedYes
	case len(missing) < total:
		e.Used = UsedPartly
		var reasons []string
		for _, v := range missing {
			reasons = append(reasons, "not "+v.clients+": "+e.whyNotIn(v))
		}
		e.Reason = strings.Join(reasons, "; ")
	default:
		e.Used = UsedNo
		var reasons []string
		for _, v := range missing {
			if why := e.whyNotIn(v); !slices.Contains(reasons, why) {
				reasons = append(reasons, why)
			}
		}
		e.Reason = strings.Join(reasons, "; ")
	}
}

func (e *Endpoint) whyNotIn(v view) string {
	if v.holder != nil {
		return "the address belongs to " + v.holder.String()
	}
	return e.WhyNot(v.localOnly)
}

// WhyNot says why new connections do not go to an endpoint: the rules of choice, in their order. localOnly says that a
// traffic policy keeps them on this node.
func (e *Endpoint) WhyNot(localOnly bool) string {
	switch {
	case !e.Ready && !(e.Serving && e.Terminating):
		return "not ready"
	case localOnly && !e.Local:
		return "on another node"
	case !e.Ready:
		return "terminating"
	case len(e.HintNodes)+len(e.HintZones) > 0 && !localOnly:
		return "its hints are for others"
	}
	return "not chosen"
}
