package kube

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Access is what Check found.
type Access struct {
	// Kubeconfig is the file that was used, and Server whom it names; Server is empty if the file cannot be used.
	Kubeconfig, Server string
	// NotAfter is the end of the client certificate; zero without one.
	NotAfter time.Time
	// Allowed are the resources that can be listed and watched.
	Allowed []string
	// Problems are reasons, with remedies, why others cannot. What only makes less, as
	// ServiceCIDRs of an old server, is in Lesser.
	Problems, Lesser []string
}

// Check asks the API server for everything that a Source reads, a single object of each kind.
// explicit is as Options.Kubeconfig. An error is about the kubeconfig.
func Check(ctx context.Context, explicit, nodeName string) (Access, error) {
	path, err := findKubeconfig(explicit)
	a := Access{Kubeconfig: path}
	if err != nil {
		return a, err
	}
	k, err := readKubeconfig(path)
	if err != nil {
		return a, err
	}
	a.Server = k.rest.Host
	if k.cert != nil {
		a.NotAfter = k.cert.NotAfter
	}
	c, err := newClient(k.rest)
	if err != nil {
		return a, err
	}
	defer c.close()
	for _, r := range resources(nodeName) {
		err := c.mayRead(ctx, r)
		if err == nil {
			a.Allowed = append(a.Allowed, r.name)
			continue
		}
		f := describe(err, c.server, r.name)
		reason := fmt.Sprintf("%s: %s", r.name, f.reason)
		if f.resource == "" {
			reason = f.where + " " + f.reason
		}
		if f.class == "not found" && !r.needed {
			a.Lesser = append(a.Lesser, reason)
			continue
		}
		a.Problems = append(a.Problems, reason)
		if f.class == "unreachable" || f.resource == "" {
			break // the others would say the same
		}
	}
	return a, nil
}

// mayRead lists one object and opens a watch.
func (c *client) mayRead(ctx context.Context, r resource) error {
	opts := metav1.ListOptions{LabelSelector: r.labelSelector, FieldSelector: r.fieldSelector, Limit: 1}
	body, err := c.list(ctx, r.path, opts)
	if err != nil {
		return err
	}
	_, err = readList(body, r.list(), func(runtime.Object) error { return nil })
	body.Close()
	if err != nil {
		return err
	}
	second := int64(1)
	opts.Limit, opts.TimeoutSeconds = 0, &second
	w, err := c.watch(ctx, r.path, opts, nil)
	if err == nil {
		w.Stop()
	}
	return err
}
