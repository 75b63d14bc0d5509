package kube

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"sluice/agent/version"
)

// Limits of requests, against mistakes: each kind asks one thing at a time, and
// what fails is asked again with pauses. kube-proxy's 5 a second would make
// a list of 50 pages last 10 s. Watches are not counted by client-go.
const (
	requestsPerSecond = 50
	requestsBurst     = 100
)

// dialTimeout is how long a connection may take to be made. The kernel sends a packet that is lost again after
// 1, 3, 7, 15 and 31 s: a new attempt is there sooner than a late one when the network is back.
const dialTimeout = 5 * time.Second

// client speaks to one API server with one set of credentials.
type client struct {
	rest   *rest.RESTClient
	http   *http.Client
	server string
}

// newClient makes a client; it does not speak to the server yet.
func newClient(cfg *rest.Config) (*client, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.APIPath = "/" // paths are absolute
	cfg.GroupVersion = &schema.GroupVersion{Version: "v1"}
	cfg.NegotiatedSerializer = newSerializer()
	cfg.ContentType = runtime.ContentTypeProtobuf
	cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	cfg.UserAgent = "sluice/" + version.Get().Version
	cfg.QPS, cfg.Burst = requestsPerSecond, requestsBurst
	cfg.WarningHandler = rest.NoWarnings{}
	// Only lists would be compressed: the server does not compress watches. Both machines' time is
	// dearer than the bytes of the rare list.
	cfg.DisableCompression = true
	cfg.Proxy = proxyOf(cfg)
	cfg.Dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return &guard{rt} })
	httpClient, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("set up connections to %s: %w", cfg.Host, err)
	}
	// An API server sends nobody elsewhere. Who does would get the credentials there, too.
	httpClient.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	restClient, err := rest.RESTClientForConfigAndClient(cfg, httpClient)
	if err != nil {
		return nil, fmt.Errorf("set up requests to %s: %w", cfg.Host, err)
	}
	return &client{rest: restClient, http: httpClient, server: cfg.Host}, nil
}

func (c *client) get(path string, opts *metav1.ListOptions) *rest.Request {
	// Who asks waits by itself and says so; rest would wait in silence.
	return c.rest.Get().AbsPath(path).MaxRetries(0).
		SpecificallyVersionedParams(opts, metav1.ParameterCodec, schema.GroupVersion{Version: "v1"})
}

// list asks for a list, or a page of one.
func (c *client) list(ctx context.Context, path string, opts metav1.ListOptions) (io.ReadCloser, error) {
	return c.get(path, &opts).Stream(ctx)
}

// watch opens a watch. The error can be the network's. refused is told which objects are too large to be passed on.
func (c *client) watch(ctx context.Context, path string, opts metav1.ListOptions, refused func(*oversized)) (watch.Interface, error) {
	opts.Watch = true
	of := watchRequest{refused: refused}
	w, err := c.get(path, &opts).Watch(context.WithValue(ctx, watchKey{}, &of))
	if err == nil && of.lost != nil {
		// rest turns some errors of the network into a watch that ends at once.
		w.Stop()
		return nil, of.lost
	}
	return w, err
}

// close ends connections that are not in use.
func (c *client) close() { c.http.CloseIdleConnections() }
