package cluster

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"os"
	"strings"
)

// writeServerFiles writes the keys and certificates of kube-apiserver.
func (c *Cluster) writeServerFiles() error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	cert, err := c.CA.Valid("kube-apiserver", c.bind.Addr())
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{
		"ca.crt": c.CA.PEM, "tls.crt": cert.Cert, "tls.key": cert.Key,
		"sa.key": pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}),
	} {
		if err := os.WriteFile(c.file(name), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// SetTokens sets the tokens by which the server knows ProxyUser. It reads them when it starts.
func (c *Cluster) SetTokens(tokens ...string) error {
	var s strings.Builder
	fmt.Fprintf(&s, "%s,admin,admin,system:masters\n", adminToken)
	for _, token := range tokens {
		fmt.Fprintf(&s, "%s,%s,%[2]s\n", token, ProxyUser)
	}
	return os.WriteFile(c.file("tokens.csv"), []byte(s.String()), 0o600)
}

// TokenKubeconfig is the text of a kubeconfig with a token.
func (c *Cluster) TokenKubeconfig(token string) string {
	return c.kubeconfig(fmt.Sprintf("{token: %q}", token))
}

// CertKubeconfig is the text of a kubeconfig with a client certificate.
func (c *Cluster) CertKubeconfig(p Pair) string {
	return c.kubeconfig(fmt.Sprintf("{client-certificate-data: %s, client-key-data: %s}",
		base64.StdEncoding.EncodeToString(p.Cert), base64.StdEncoding.EncodeToString(p.Key)))
}

func (c *Cluster) kubeconfig(user string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- name: local
  cluster: {server: "%s", certificate-authority-data: %s}
contexts:
- name: Default
  context: {cluster: local, user: user, namespace: default}
current-context: Default
users:
- name: user
  user: %s
`, c.URL, base64.StdEncoding.EncodeToString(c.CA.PEM), user)
}
