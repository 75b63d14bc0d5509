package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// maxSeeds is how many operations etcd takes in one transaction (its --max-txn-ops).
const maxSeeds = 128

// Seed puts new Services with a ClusterIP, and EndpointSlices, into etcd as they are, behind the server's back. The server gives out
// each ClusterIP in a time that grows with the number of those that are given: it would take an hour for 30,000.
func (c *Cluster) Seed(ctx context.Context, objs ...Object) error {
	type put struct {
		Key   []byte `json:"key"`
		Value []byte `json:"value"`
	}
	type operation struct {
		Put put `json:"request_put"`
	}
	for some := range slices.Chunk(objs, maxSeeds) {
		var txn struct {
			Success []operation `json:"success"`
		}
		for _, obj := range some {
			if _, _, err := paths(obj); err != nil {
				return err
			}
			var key string // as registry/core/rest and registry/discovery/rest have it
			switch o := obj.(type) {
			case *corev1.Service:
				key = "/registry/services/specs/"
				o.Spec.ClusterIPs = []string{o.Spec.ClusterIP}
			case *discoveryv1.EndpointSlice:
				key = "/registry/endpointslices/"
			default:
				return fmt.Errorf("%T: nobody knows where etcd has it", obj)
			}
			obj.SetUID(types.UID("seed-" + obj.GetName()))
			obj.SetCreationTimestamp(metav1.Now())
			value, err := json.Marshal(obj)
			if err != nil {
				return err
			}
			txn.Success = append(txn.Success, operation{put{[]byte(key + namespace(obj) + "/" + obj.GetName()), value}})
		}
		body, err := json.Marshal(txn)
		if err != nil {
			return err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.etcd+"/v3/kv/txn", bytes.NewReader(body))
		if err != nil {
			return err
		}
		resp, err := c.client.Do(req)
		if err != nil {
			return err
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK {
			return fmt.Errorf("put objects into etcd: %s %s: %w", resp.Status, text, err)
		}
	}
	return nil
}
