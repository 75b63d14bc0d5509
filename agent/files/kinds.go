package files

import (
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"sluice/agent/source"
)

// key names an object. Namespace is empty for kinds that have none.
type key struct {
	kind            source.Kind
	namespace, name string
}

func (k key) String() string {
	if k.namespace == "" {
		return string(k.kind) + " " + k.name
	}
	return string(k.kind) + " " + k.namespace + "/" + k.name
}

// kind is a kind that is read.
type kind struct {
	name       source.Kind
	group      string // empty for the core group
	version    string
	namespaced bool
	// decode decodes, defaults and checks an object of the kind.
	decode func(raw []byte) (metav1.Object, findings)
}

func (k *kind) apiVersion() string {
	if k.group == "" {
		return k.version
	}
	return k.group + "/" + k.version
}

// kindNamed returns the kind of that name in that group, or nil if it is not read.
func kindNamed(group, name string) *kind {
	for i := range kinds {
		if kinds[i].group == group && string(kinds[i].name) == name {
			return &kinds[i]
		}
	}
	return nil
}

// groupOf returns the group of an apiVersion.
func groupOf(apiVersion string) string {
	group, _, found := strings.Cut(apiVersion, "/")
	if !found {
		return ""
	}
	return group
}

// kinds are the kinds that are read.
var kinds = [...]kind{
	{source.Service, "", "v1", true, decodeAs(defaultService, validateService)},
	{source.EndpointSlice, discoveryv1.GroupName, "v1", true, decodeAs(defaultEndpointSlice, validateEndpointSlice)},
	{source.Node, "", "v1", false, decodeAs(defaultNode, validateNode)},
	{source.ServiceCIDR, networkingv1.GroupName, "v1", false, decodeAs(func(*networkingv1.ServiceCIDR) {}, validateServiceCIDR)},
}

// findings is what is wrong with an object.
type findings struct {
	// refused are the reasons for not taking the object.
	refused []string
	// unserved say which part of an object that is taken is not served, and why.
	unserved []string
	// notes are worth a line in the log, no more.
	notes []string
}

func (f *findings) refuse(errs ...*field.Error) {
	for _, err := range errs {
		f.refused = append(f.refused, err.Error())
	}
}

// decodeAs makes a kind's decode of its defaults and its checks.
func decodeAs[T any, P interface {
	*T
	metav1.Object
}](setDefaults func(P), validate func(P, *findings)) func([]byte) (metav1.Object, findings) {
	return func(raw []byte) (metav1.Object, findings) {
		obj := P(new(T))
		var f findings
		if f.refused = unmarshal(raw, obj); f.refused != nil {
			return obj, f
		}
		setDefaults(obj)
		validate(obj, &f)
		return obj, f
	}
}
