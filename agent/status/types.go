// Package status is what the agent tells of itself: the documents, the unix
// socket they are asked for on, and their form for people.
//
// The documents are JSON. Within a major version fields are added, and none is
// renamed, removed or given another meaning.
package status

import (
	"context"
	"net/netip"
	"time"

	"sluice/agent/source"
	"sluice/agent/sysctl"
	"sluice/proxy"
)

// Provider makes the documents; the agent's loop is one. Its methods are called from
// the server's goroutines, several at a time.
type Provider interface {
	// Status says how the agent is.
	Status(ctx context.Context) (Status, error)
	// Services lists the Services that are served, by namespace and name.
	Services(ctx context.Context) ([]Service, error)
	// Endpoints lists the endpoints of these Services, by Service, port and address.
	Endpoints(ctx context.Context) ([]Endpoint, error)
	// Counts says what the kernel counted for each Service.
	Counts(ctx context.Context) (Counts, error)
	// Diff compares the kernel with what it should be.
	Diff(ctx context.Context) (Diff, error)
	// Explain says what becomes of connections. A *QuestionError is about the question.
	Explain(ctx context.Context, q Question) ([]Path, error)
}

// Status is the document of `sluice status`.
type Status struct {
	// Healthy is false while something keeps the kernel from being what it should be.
	Healthy bool `json:"healthy"`
	// Reasons say in whole sentences why Healthy is false.
	Reasons []string `json:"reasons,omitempty"`

	Version string `json:"version"`
	PID     int    `json:"pid"`
	// Started is when the agent started.
	Started time.Time `json:"started"`
	// Mode is how rules are written: nftables or iptables.
	Mode string `json:"mode"`

	// Node is the name of this node's Node object.
	Node string `json:"node"`
	// NodeKnown is true if there is a Node object of that name: without one the zone and the pod CIDRs are unknown.
	NodeKnown bool `json:"nodeKnown"`
	// NodeAddresses are the addresses of this node, without loopback and link-local ones.
	NodeAddresses []netip.Addr `json:"nodeAddresses"`
	// NodePortAddresses are those of them that serve NodePorts.
	NodePortAddresses []netip.Addr `json:"nodePortAddresses"`
	// Detection says how pods are told from other sources, and how that was chosen: a line for each family.
	Detection string `json:"detection"`

	// Source names where objects come from.
	Source string `json:"source"`
	// Synced is true once the source has handed over everything there is.
	Synced bool `json:"synced"`
	// Objects counts the objects that are held, by kind.
	Objects map[source.Kind]int `json:"objects,omitempty"`
	// Services counts the Services that are served.
	Services int `json:"services"`
	// Cache is what is kept over a restart.
	Cache Cache `json:"cache"`

	// Flows is how full the kernel's connection tracking table is; none while it is not in use.
	Flows *sysctl.Flows `json:"flows,omitempty"`

	// Families has one entry for each IP family that is written.
	Families []Family `json:"families"`

	// Drift are the last repairs of what other programs had changed, the latest of each family last.
	Drift []Drift `json:"drift,omitempty"`

	// Problems are what the source cannot take up at present.
	Problems []source.Problem `json:"problems,omitempty"`
	// Conflicts are addresses that more than one Service claims, and other things of a
	// Service that are not served, in whole sentences.
	Conflicts []string `json:"conflicts,omitempty"`
}

// Cache is the state of the file that keeps the objects over a restart.
type Cache struct {
	// Path of the file.
	Path string `json:"path"`
	// Serving is true while the node is served from what an earlier agent left, as the source
	// has not told everything yet.
	Serving bool `json:"serving"`
	// Age is how long ago the objects were in step with the API server, in nanoseconds; 0 with manifests,
	// and if that is unknown.
	Age time.Duration `json:"age,omitempty"`
	// Size of the file, and BytesWritten since the start, in bytes.
	Size         int64 `json:"size"`
	BytesWritten int64 `json:"bytesWritten"`
	// Waiting counts the changes that are not in the file yet.
	Waiting int `json:"waiting"`
	// LastError is why it could not be written last, or why there is none; empty if all is well.
	LastError string `json:"lastError,omitempty"`
}

// Family is the state of one IP family.
type Family struct {
	// Family is 4 or 6.
	Family proxy.Family `json:"family"`
	// Services counts the Services that have a frontend in this family.
	Services int `json:"services"`
	// Frontends counts addresses with protocol and port that clients can send to.
	Frontends int `json:"frontends"`
	// Endpoints counts the distinct endpoints that new connections can go to.
	Endpoints int `json:"endpoints"`

	// LastSync is when the kernel was last written or compared with success; zero before the first time.
	LastSync time.Time `json:"lastSync,omitzero"`
	// LastSyncDuration is how long the write took that LastSync ended, in nanoseconds.
	LastSyncDuration time.Duration `json:"lastSyncDuration"`
	// LastError is why the last write failed; empty after a write that did not.
	LastError string `json:"lastError,omitempty"`
	// RetryAt is when a failed write is tried again; zero if none failed.
	RetryAt time.Time `json:"retryAt,omitzero"`
	// Pending is true while a change waits to be written.
	Pending bool `json:"pending"`
	// Repairs counts the times at which something else had changed the kernel's rules and they were mended.
	Repairs int `json:"repairs"`
}

// Service is one line of `sluice get services`.
type Service struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Type is ClusterIP, NodePort or LoadBalancer.
	Type       string   `json:"type"`
	ClusterIPs []string `json:"clusterIPs"`
	// ExternalIPs are spec.externalIPs and the load balancer's addresses that are served here.
	ExternalIPs []string      `json:"externalIPs,omitempty"`
	Ports       []ServicePort `json:"ports"`
	// Endpoints counts the endpoints by family, in the order of ClusterIPs.
	Endpoints []EndpointCount `json:"endpoints"`
	// InternalTrafficPolicy is Cluster or Local.
	InternalTrafficPolicy string `json:"internalTrafficPolicy"`
	// ExternalTrafficPolicy is Cluster or Local; empty for a Service without an address outside the cluster.
	ExternalTrafficPolicy string `json:"externalTrafficPolicy,omitempty"`
	// AffinitySeconds is the time of session affinity by client address; 0 without.
	AffinitySeconds int32 `json:"affinitySeconds,omitempty"`
	// SourceRanges limit who gets through at the load balancer's addresses.
	SourceRanges []string `json:"sourceRanges,omitempty"`
	// HealthCheckNodePort is where load balancers ask for local endpoints; 0 without.
	HealthCheckNodePort int32     `json:"healthCheckNodePort,omitempty"`
	Created             time.Time `json:"created,omitzero"`
	// NotServed says which parts of the Service are not served, and why.
	NotServed []string `json:"notServed,omitempty"`
}

// ServicePort is one port of a Service.
type ServicePort struct {
	Name     string `json:"name,omitempty"`
	Protocol string `json:"protocol"`
	Port     int32  `json:"port"`
	NodePort int32  `json:"nodePort,omitempty"`
}

// EndpointCount counts a Service's endpoints in one family, each address once
// however many ports it has.
type EndpointCount struct {
	// Family is 4 or 6.
	Family proxy.Family `json:"family"`
	// Ready are those that are ready.
	Ready int `json:"ready"`
	// Used are those that this node sends new connections to; topology, traffic policies and
	// readiness decide.
	Used int `json:"used"`
	// Total are all.
	Total int `json:"total"`
}

// Use says whether this node sends new connections to an endpoint.
type Use string

// The values of Endpoint.Used.
const (
	UsedYes    Use = "yes"
	UsedPartly Use = "partly" // at some addresses of the Service or for some clients only
	UsedNo     Use = "no"
)

// Endpoint is one line of `sluice get endpoints`: one address and port behind one port of a Service.
type Endpoint struct {
	Namespace string `json:"namespace"`
	Service   string `json:"service"`
	// Port is the name of the Service's port; empty if that has none.
	Port     string `json:"port,omitempty"`
	Protocol string `json:"protocol"`
	// Address is where packets go to.
	Address netip.AddrPort `json:"address"`
	// Node is where the endpoint is; empty if its slice does not say.
	Node string `json:"node,omitempty"`
	// Ready, Serving and Terminating are the conditions, with the defaults filled in.
	Ready       bool `json:"ready"`
	Serving     bool `json:"serving"`
	Terminating bool `json:"terminating"`
	// Local is true for an endpoint on this node.
	Local bool `json:"local"`
	// HintZones and HintNodes are whom the control plane means this endpoint for.
	HintZones []string `json:"hintZones,omitempty"`
	HintNodes []string `json:"hintNodes,omitempty"`
	// Used says whether this node sends new connections there.
	Used Use `json:"used"`
	// Reason is why Used is not yes.
	Reason string `json:"reason,omitempty"`
}

// List is how several documents of a kind are given.
type List[T Service | Endpoint | Path] struct {
	Items []T `json:"items"`
}
