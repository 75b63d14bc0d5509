package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"unicode"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// maxReason bounds what of an error is kept: the body of a page of HTML can be in it.
const maxReason = 300

// describe says which fault an error is that came from reading a resource of a server.
func describe(err error, server, resource string) fault {
	if errors.Is(err, errJunk) {
		return junk(err, server)
	}
	if f, ok := describeTLS(err, server); ok {
		return f
	}
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return describeStatus(err, status.Status(), server, resource)
	}
	switch {
	case errors.Is(err, errTooLarge):
		return fault{"too large", server, resource, err.Error() + ", and what came of it is not taken for all; it is read again after some minutes; " +
			"look what listens there; if something makes objects without end, stop it and delete them; for a cluster that needs so many, use kube-proxy"}
	case errors.Is(err, errQuiet):
		return fault{"quiet", server, resource, err.Error() + "; it is asked again"}
	case errors.Is(err, errOrder):
		return fault{"order", server, resource, err.Error() + "; everything is read again; look whether something between changes what the server sends"}
	case errors.Is(err, errCut):
		return fault{"cut", server, resource, err.Error() + "; it is asked again, with growing pauses"}
	case isUnreachable(err):
		return fault{"unreachable", server, "", "cannot be reached: " + shorten(err) + "; waiting for the network or the server (with k3s look at it on the servers: systemctl status k3s)"}
	}
	return junk(err, server)
}

// junk is an answer that no API server gives.
func junk(err error, server string) fault {
	return fault{"junk", server, "", "the answer is not an API server's: " + shorten(err) + "; look what listens there"}
}

// isUnreachable knows errors of the network, before an answer came or in its middle.
func isUnreachable(err error) bool {
	if strings.Contains(err.Error(), "malformed HTTP") { // of net/http
		return false
	}
	var netErr net.Error // *url.Error is one
	return errors.As(err, &netErr) || errors.Is(err, context.DeadlineExceeded) ||
		utilnet.IsProbableEOF(err) || utilnet.IsHTTP2ConnectionLost(err) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, errBroke) ||
		strings.Contains(err.Error(), "when reading response body") // of rest.Request.Do
}

// describeTLS knows errors of certificates.
func describeTLS(err error, server string) (fault, bool) {
	var invalid x509.CertificateInvalidError
	var unknown x509.UnknownAuthorityError
	var verify *tls.CertificateVerificationError
	var alert tls.AlertError
	var record tls.RecordHeaderError
	var opErr *net.OpError
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fault{"server certificate expired", server, "", "the server's certificate is not valid now: " + shorten(err) +
			"; is this machine's clock right? Otherwise renew the certificate, with k3s by restarting the server"}, true
	case errors.As(err, &unknown):
		return fault{"authority", server, "", "the server's certificate is not signed by the kubeconfig's certificate authority: " + shorten(err) +
			"; another cluster, or a rotated authority: write the kubeconfig anew, with k3s by restarting it"}, true
	case errors.As(err, &verify):
		return fault{"tls", server, "", "the server's certificate is not accepted: " + shorten(err)}, true
	case errors.As(err, &alert), errors.As(err, &opErr) && opErr.Op == "remote error":
		return fault{"client certificate", server, "", "the server refuses the client certificate: " + shorten(err) +
			"; renew it, with k3s by restarting it"}, true
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return fault{"tls", server, "", "what listens there does not speak TLS: " + shorten(err)}, true
	}
	return fault{}, false
}

// describeStatus knows what an API server answers.
func describeStatus(err error, status metav1.Status, server, resource string) fault {
	switch {
	case apierrors.IsUnauthorized(err):
		return fault{"unauthorized", server, "", "the server does not accept the kubeconfig's credentials (401): " + shorten(err) +
			"; renew the client certificate or token, with k3s by restarting it"}
	case apierrors.IsForbidden(err):
		return fault{"forbidden", server, resource, "the user may not list and watch this (403): " + shorten(err) +
			"; bind the ClusterRole system:node-proxier to it"}
	case apierrors.IsNotFound(err):
		return fault{"not found", server, resource, "the server does not have this (404): " + shorten(err)}
	case isJunk(status):
		return junk(err, server)
	}
	return fault{
		fmt.Sprint("status ", status.Code), server, "",
		fmt.Sprintf("the server answers %d (%s): %s; it is asked again, with growing pauses",
			status.Code, http.StatusText(int(status.Code)), shorten(err)),
	}
}

// isJunk tells whether client-go made the status up because it could not decode what came.
func isJunk(status metav1.Status) bool {
	if status.Details == nil {
		return false
	}
	for _, cause := range status.Details.Causes {
		if cause.Type == "ClientWatchDecoding" { // of rest.Request.Watch
			return true
		}
	}
	return false
}

// shorten makes one line of an error, without the address of the request and without what would steer a terminal: a server's words
// can be in it.
func shorten(err error) string {
	var request *url.Error
	if errors.As(err, &request) {
		err = request.Err
	}
	s := strings.Join(strings.Fields(strings.ToValidUTF8(err.Error(), "?")), " ")
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
	if len(s) > maxReason {
		s = strings.ToValidUTF8(s[:maxReason], "") + "..."
	}
	return s
}
