package health

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// toBeDeletedTaint is what the cluster autoscaler puts on a node that it is going
// to remove (ToBeDeletedTaint in its utils/taints).
const toBeDeletedTaint = "ToBeDeletedByClusterAutoscaler"

// NodeEligible tells whether load balancers may go on to use a node: not if it is
// being deleted or is going to be (KEP-3836). A nil node, of which nothing is known, is eligible.
func NodeEligible(node *corev1.Node) bool {
	if node == nil {
		return true
	}
	return node.DeletionTimestamp.IsZero() &&
		!slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == toBeDeletedTaint })
}
