package rig

import (
	"context"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice/test/lab"
)

// Get asks for a URL from a host, over a connection of its own. The code is 0 and the body the error if
// there is no answer.
func Get(t *testing.T, from *lab.Host, url string) (code int, body string, header http.Header) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		err = from.Do(func() error {
			conn, err = new(net.Dialer).DialContext(ctx, network, address)
			return err
		})
		return conn, err
	}}
	response, err := (&http.Client{Transport: transport, Timeout: 2 * time.Second}).Get(url)
	if err != nil {
		return 0, err.Error(), nil
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text), response.Header
}

// Metric asks the agent on a node for its metrics and returns the sample with this
// name and these labels, or NaN if it is not there.
func Metric(t *testing.T, node *lab.Host, sample string) float64 {
	t.Helper()
	code, body, _ := Get(t, node, "http://127.0.0.1:10249/metrics")
	if code != http.StatusOK {
		t.Fatalf("/metrics: %d: %s", code, body)
	}
	for line := range strings.Lines(body) {
		if value, ok := strings.CutPrefix(line, sample+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	return math.NaN()
}
