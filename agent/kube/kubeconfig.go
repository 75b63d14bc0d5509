package kube

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Kubeconfigs is where a kubeconfig for a node's proxy is looked for, in this order:
// k3s and RKE2 write one even where their own kube-proxy is off; the last is where
// hand-made clusters and kubeadm's kube-proxy keep it.
func Kubeconfigs() []string {
	return []string{
		"/var/lib/rancher/k3s/agent/kubeproxy.kubeconfig",
		"/var/lib/rancher/rke2/agent/kubeproxy.kubeconfig",
		"/var/lib/kube-proxy/kubeconfig",
		"/var/lib/kube-proxy/kubeconfig.conf",
	}
}

// maxKubeconfig bounds what is read of a kubeconfig: none is as large as that.
const maxKubeconfig = 1 << 20

// kubeconfig is a complete one, with the files that it names read in.
type kubeconfig struct {
	path string
	rest *rest.Config
	// files are the kubeconfig itself and what it names, but for the token: client-go reads that
	// one again each minute.
	files []string
	// sum tells whether anything in them changed.
	sum [sha256.Size]byte
	// cert is the client certificate; nil without one.
	cert     *x509.Certificate
	identity Identity
}

// same tells whether other (nil: none) says the same.
func (k *kubeconfig) same(other *kubeconfig) bool {
	return other != nil && other.path == k.path && other.sum == k.sum
}

// findKubeconfig returns explicit, or else the first that exists of Kubeconfigs.
func findKubeconfig(explicit string) (string, error) {
	if explicit != "" {
		return explicit, nil
	}
	for _, path := range Kubeconfigs() {
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("none of %s: %w", strings.Join(Kubeconfigs(), ", "), fs.ErrNotExist)
}

// readKubeconfig reads a kubeconfig and what it names. Whatever is missing or does not
// fit together is an error: it can be about to be written.
func readKubeconfig(path string) (*kubeconfig, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	k := &kubeconfig{path: path}
	if k.rest, k.files, err = parseKubeconfig(path, data); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	t := &k.rest.TLSClientConfig
	if t.CertData != nil || t.KeyData != nil {
		pair, err := tls.X509KeyPair(t.CertData, t.KeyData)
		if err != nil {
			return nil, fmt.Errorf("read the client certificate and key of %s: %w", path, err)
		}
		k.cert = pair.Leaf
	}
	if k.identity, err = identify(t.CAData); err != nil {
		return nil, fmt.Errorf("read the certificate authority of %s: %w", path, err)
	}
	k.sum = sha256.Sum256(bytes.Join([][]byte{data, t.CAData, t.CertData, t.KeyData}, []byte{0}))
	return k, nil
}

// parseKubeconfig returns the current context of a kubeconfig, with the certificates
// that it names by file read in, and the files.
func parseKubeconfig(path string, data []byte) (*rest.Config, []string, error) {
	config, err := clientcmd.Load(data)
	if err != nil {
		return nil, nil, hideQuoted(err)
	}
	for _, c := range config.Clusters {
		c.LocationOfOrigin = path
	}
	for _, u := range config.AuthInfos {
		u.LocationOfOrigin = path
	}
	if err := clientcmd.ResolveLocalPaths(config); err != nil {
		return nil, nil, err
	}
	if err := checkURLs(config); err != nil {
		return nil, nil, err
	}
	cfg, err := clientcmd.NewDefaultClientConfig(*config, &clientcmd.ConfigOverrides{}).ClientConfig()
	if clientcmd.IsEmptyConfig(err) { // client-go advises a variable that is not read here
		return nil, nil, errors.New("it names no cluster to connect to")
	}
	if err != nil {
		return nil, nil, hideSecrets(err, config)
	}
	moveUser(cfg)
	files := []string{path}
	for _, from := range []struct {
		file *string
		data *[]byte
	}{
		{&cfg.CAFile, &cfg.CAData}, {&cfg.CertFile, &cfg.CertData}, {&cfg.KeyFile, &cfg.KeyData},
	} {
		if len(*from.data) == 0 && *from.file != "" {
			if *from.data, err = readFile(*from.file); err != nil {
				return nil, nil, err
			}
			files = append(files, *from.file)
		}
		*from.file = "" // client-go must not follow the file, too
	}
	return cfg, files, nil
}

// readFile reads a whole file that must have something in it.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxKubeconfig+1))
	switch {
	case err != nil:
		return nil, err
	case len(data) == 0:
		return nil, fmt.Errorf("read %s: it is empty", path)
	case len(data) > maxKubeconfig:
		return nil, fmt.Errorf("read %s: it has more than %d bytes", path, maxKubeconfig)
	}
	return data, nil
}

// nodeUser begins the name of a kubelet's user; the node's name follows (KEP-279).
const nodeUser = "system:node:"

// NodeName returns the name of this node's Node object: what the kubelet's certificate
// beside the kubeconfig says (k3s writes both; kubeconfig "" is looked for as a Source
// does), else the host name in lower case. It says which.
func NodeName(kubeconfig string) (name, from string, err error) {
	if path, err := findKubeconfig(kubeconfig); err == nil {
		file := filepath.Join(filepath.Dir(path), "client-kubelet.crt")
		if name := nodeOf(file); name != "" {
			return name, file, nil
		}
	}
	host, err := os.Hostname()
	if err != nil {
		return "", "", fmt.Errorf("find this node's name: %w (set --node-name)", err)
	}
	return strings.ToLower(host), "host name", nil
}

// nodeOf returns the node that a kubelet's certificate is for, or "".
func nodeOf(file string) string {
	data, err := readFile(file)
	if err != nil {
		return ""
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return ""
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return ""
	}
	name, ok := strings.CutPrefix(cert.Subject.CommonName, nodeUser)
	if !ok {
		return ""
	}
	return name
}

// pemCertificates parses the certificates of a bundle, sorted and without doubles.
func pemCertificates(bundle []byte) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		certs = append(certs, cert)
	}
	if len(certs) == 0 && len(bundle) > 0 {
		return nil, errors.New("no certificate in it")
	}
	slices.SortFunc(certs, func(a, b *x509.Certificate) int { return bytes.Compare(a.Raw, b.Raw) })
	return slices.CompactFunc(certs, (*x509.Certificate).Equal), nil
}
