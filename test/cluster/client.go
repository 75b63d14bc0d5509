package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Object is a Service, EndpointSlice, Node or ServiceCIDR. A Service or EndpointSlice without a
// namespace is one in "default".
type Object interface {
	metav1.Object
	runtime.Object
}

// StatusError is an answer of the server other than 2xx.
type StatusError struct {
	Code int
	Body string
}

func (e *StatusError) Error() string { return fmt.Sprintf("HTTP status %d: %s", e.Code, e.Body) }

func (c *Cluster) newClient() *http.Client {
	pool := x509.NewCertPool()
	pool.AddCert(c.CA.Cert)
	return &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true,
		DialContext: func(ctx context.Context, network, addr string) (conn net.Conn, err error) {
			err = c.do(func() error {
				conn, err = (&net.Dialer{}).DialContext(ctx, network, addr)
				return err
			})
			return conn, err
		},
	}}
}

// Create makes objects that are new. It writes nothing into them but their types and namespace.
func (c *Cluster) Create(ctx context.Context, objs ...Object) error {
	for _, obj := range objs {
		collection, _, err := paths(obj)
		if err != nil {
			return err
		}
		if _, err := c.Do(ctx, http.MethodPost, collection, obj); err != nil {
			return err
		}
	}
	return nil
}

// Apply makes objects, or replaces those that exist. What the server has given to a Service, as its
// ClusterIP, stays.
func (c *Cluster) Apply(ctx context.Context, objs ...Object) error {
	for _, obj := range objs {
		_, path, err := paths(obj)
		if err != nil {
			return err
		}
		_, err = c.Do(ctx, http.MethodPut, path, obj)
		var status *StatusError
		if errors.As(err, &status) && status.Code == http.StatusNotFound {
			err = c.Create(ctx, obj)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ApplyStatus replaces the status of objects that exist, e.g. a load balancer's addresses.
func (c *Cluster) ApplyStatus(ctx context.Context, objs ...Object) error {
	for _, obj := range objs {
		_, path, err := paths(obj)
		if err != nil {
			return err
		}
		if _, err := c.Do(ctx, http.MethodPut, path+"/status", obj); err != nil {
			return err
		}
	}
	return nil
}

// Delete deletes objects.
func (c *Cluster) Delete(ctx context.Context, objs ...Object) error {
	for _, obj := range objs {
		_, path, err := paths(obj)
		if err != nil {
			return err
		}
		if _, err := c.Do(ctx, http.MethodDelete, path, nil); err != nil {
			return err
		}
	}
	return nil
}

// paths returns the paths of an object and of its collection, and fills in its types and its namespace.
func paths(obj Object) (collection, path string, err error) {
	switch o := obj.(type) {
	case *corev1.Node:
		o.TypeMeta, collection = metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, "/api/v1/nodes"
	case *corev1.Service:
		o.TypeMeta, collection = metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, "/api/v1/namespaces/"+namespace(o)+"/services"
	case *discoveryv1.EndpointSlice:
		o.TypeMeta = metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}
		collection = "/apis/discovery.k8s.io/v1/namespaces/" + namespace(o) + "/endpointslices"
	case *networkingv1.ServiceCIDR:
		o.TypeMeta = metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "ServiceCIDR"}
		collection = "/apis/networking.k8s.io/v1/servicecidrs"
	default:
		return "", "", fmt.Errorf("no path is known for a %T", obj)
	}
	return collection, collection + "/" + obj.GetName(), nil
}

func namespace(obj Object) string {
	if obj.GetNamespace() == "" {
		obj.SetNamespace(metav1.NamespaceDefault)
	}
	return obj.GetNamespace()
}

// Do sends a request as an administrator. The path may have a query. The body is marshalled to JSON, nil is
// none. An answer other than 2xx is a *StatusError.
func (c *Cluster) Do(ctx context.Context, method, path string, body any) (string, error) {
	header := http.Header{"Authorization": {"Bearer " + adminToken}}
	text, err := c.ask(ctx, method, c.URL+path, header, body)
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", method, path, err)
	}
	return text, nil
}

// ask sends a request to one of the servers, as Do does.
func (c *Cluster) ask(ctx context.Context, method, url string, header http.Header, body any) (string, error) {
	var in io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return "", err
		}
		in = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, url, in)
	if err != nil {
		return "", err
	}
	if header != nil {
		req.Header = header
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= http.StatusMultipleChoices {
		err = &StatusError{resp.StatusCode, string(text)}
	}
	return string(text), err
}
