// Package source is the contract between where objects come from (a directory
// of manifests, an API server) and the agent's loop that plans them.
package source

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Kind is one of the kinds of object that are read.
type Kind string

// The kinds, by their Kubernetes names.
const (
	Service       Kind = "Service"       // core/v1
	EndpointSlice Kind = "EndpointSlice" // discovery.k8s.io/v1
	Node          Kind = "Node"          // core/v1
	ServiceCIDR   Kind = "ServiceCIDR"   // networking.k8s.io/v1
)

// Kinds lists them all.
var Kinds = [...]Kind{Service, EndpointSlice, Node, ServiceCIDR}

// Name names an object of a known kind. Namespace is empty for kinds without namespaces.
type Name struct{ Namespace, Name string }

// Change is one object that came, changed or went.
type Change struct {
	Kind            Kind
	Namespace, Name string
	// Object is *corev1.Service, *discoveryv1.EndpointSlice, *corev1.Node or
	// *networkingv1.ServiceCIDR, trimmed to the fields that are read (see Trim). It belongs to
	// the receiver, and no one changes it any more. Nil: the object is gone.
	Object metav1.Object
}

// Problem is something that a source could not take up.
type Problem struct {
	// Where names the place: a file and document, or an API server and resource.
	Where string `json:"where"`
	// Reason says what is wrong and what to do.
	Reason string `json:"reason"`
	// Since is when it was first seen.
	Since time.Time `json:"since"`
}

// Sink takes what a source finds. Its methods may be called from any goroutine.
type Sink interface {
	// Apply hands over changes that belong together: they are written in one go. It
	// returns when they are accepted, or with ctx's error.
	Apply(ctx context.Context, changes []Change) error
	// Replace says that of a kind these objects exist and no others: whatever else was
	// handed over, in this run or an earlier one whose cache is in use, is gone.
	Replace(ctx context.Context, kind Kind, exist map[Name]struct{}) error
	// Synced says that everything that exists was handed over once. Before that nothing is
	// written to the kernel.
	Synced()
	// SetProblems replaces the list of what cannot be taken up at present.
	SetProblems(problems []Problem)
}

// Source finds objects and follows their changes.
type Source interface {
	// String names the source for status, e.g. "manifests /etc/sluice".
	String() string
	// Run hands everything to sink until ctx ends. It returns an error only if it can
	// never work (it retries whatever may mend itself).
	Run(ctx context.Context, sink Sink) error
}
