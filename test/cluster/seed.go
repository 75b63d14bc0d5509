package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// What etcd takes in one transaction: operations (--max-txn-ops), and bytes, with room for what is around them (--max-request-bytes).
const (
	maxOperations = 128
	maxBytes      = 1 << 20
)

// put is a key of etcd and its value, in the JSON of its gateway.
type put struct {
	Key   []byte `json:"key"`
	Value []byte `json:"value"`
}

// Seed puts new Services with a ClusterIP, and EndpointSlices, into etcd as they are, behind the server's back. The server gives out
// each ClusterIP in a time that grows with the number of those that are given: it would take an hour for 30,000.
func (c *Cluster) Seed(ctx context.Context, objs ...Object) error {
	var puts []put
	size := 0
	for _, obj := range objs {
		p, err := seedOf(obj)
		if err != nil {
			return err
		}
		if len(puts) == maxOperations || size+len(p.Value) > maxBytes {
			if err := c.putAll(ctx, puts); err != nil {
				return err
			}
			puts, size = nil, 0
		}
		puts, size = append(puts, p), size+len(p.Value)
	}
	return c.putAll(ctx, puts)
}

// seedOf is an object as etcd has it, with the keys of the server's packages registry/core/rest and registry/discovery/rest.
func seedOf(obj Object) (put, error) {
	if _, _, err := paths(obj); err != nil {
		return put{}, err
	}
	var key string
	switch o := obj.(type) {
	case *corev1.Service:
		key = "/registry/services/specs/"
		o.Spec.ClusterIPs = []string{o.Spec.ClusterIP}
	case *discoveryv1.EndpointSlice:
		key = "/registry/endpointslices/"
	default:
		return put{}, fmt.Errorf("%T: nobody knows where etcd has it", obj)
	}
	obj.SetUID(types.UID("seed-" + obj.GetName()))
	obj.SetCreationTimestamp(metav1.Now())
	value, err := json.Marshal(obj)
	return put{[]byte(key + namespace(obj) + "/" + obj.GetName()), value}, err
}

// putAll is one transaction.
func (c *Cluster) putAll(ctx context.Context, puts []put) error {
	type operation struct {
		Put put `json:"request_put"`
	}
	var txn struct {
		Success []operation `json:"success"`
	}
	for _, p := range puts {
		txn.Success = append(txn.Success, operation{p})
	}
	if _, err := c.ask(ctx, http.MethodPost, c.etcd+"/v3/kv/txn", nil, txn); err != nil {
		return fmt.Errorf("put objects into etcd: %w", err)
	}
	return nil
}
