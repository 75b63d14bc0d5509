package kube

import (
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// Identity is what can be known of a cluster without speaking to it, so that a cache of
// another cluster is recognized before any network is up.
//
// A cluster has no name of its own in the API. The usual substitute, the UID of the
// Namespace kube-system, cannot be read by a node's proxy: the ClusterRole
// system:node-proxier has no rule for namespaces. What remains beside this is the
// ClusterIP of the Service default/kubernetes, which comes with the other Services.
// The server's address is none: on each k3s agent it is 127.0.0.1.
type Identity struct {
	// Authorities are SHA-256 sums of the public keys of the certificate authorities that
	// the kubeconfig trusts, in hexadecimal, sorted. Empty without https. While an authority
	// is rotated, the old and the new one are trusted at a time: two clusters with one in common are the same.
	Authorities []string `json:"authorities,omitempty"`
}

// ReadIdentity reads the identity from a kubeconfig; "" is looked for as a Source does.
func ReadIdentity(kubeconfig string) (Identity, error) {
	path, err := findKubeconfig(kubeconfig)
	if err != nil {
		return Identity{}, err
	}
	k, err := readKubeconfig(path)
	if err != nil {
		return Identity{}, err
	}
	return k.identity, nil
}

// ServerAddr reads the API server's address from a kubeconfig; "" is looked for as a Source does. It is invalid
// if there is none yet, or a name in its place.
func ServerAddr(kubeconfig string) netip.Addr {
	path, err := findKubeconfig(kubeconfig)
	if err != nil {
		return netip.Addr{}
	}
	k, err := readKubeconfig(path)
	if err != nil {
		return netip.Addr{}
	}
	return serverAddr(k.rest.Host)
}

// serverAddr is the address in a kubeconfig's server, a URL or HOST:PORT; invalid if there is a name.
func serverAddr(host string) netip.Addr {
	if u, err := url.Parse(host); err == nil && u.Host != "" {
		host = u.Host
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	addr, _ := netip.ParseAddr(strings.Trim(host, "[]"))
	return addr.Unmap()
}

// identify makes the identity of a bundle of authorities.
func identify(bundle []byte) (Identity, error) {
	certs, err := pemCertificates(bundle)
	if err != nil {
		return Identity{}, err
	}
	var id Identity
	for _, c := range certs {
		sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
		id.Authorities = append(id.Authorities, hex.EncodeToString(sum[:]))
	}
	slices.Sort(id.Authorities)
	id.Authorities = slices.Compact(id.Authorities)
	return id, nil
}
