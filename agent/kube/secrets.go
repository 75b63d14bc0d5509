package kube

import (
	"errors"
	"io/fs"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// hidden stands for a secret in a text.
const hidden = "(hidden)"

// checkURLs refuses a URL that may have a password in it and cannot be taken apart: errors of others would have it in their texts.
func checkURLs(config *clientcmdapi.Config) error {
	for _, c := range config.Clusters {
		for _, field := range []struct{ name, text string }{{"server", c.Server}, {"proxy-url", c.ProxyURL}} {
			if !strings.Contains(field.text, "@") && !strings.Contains(field.text, "://") {
				continue // HOST:PORT is allowed for a server
			}
			if u, err := url.Parse(field.text); err != nil || u.Host == "" {
				return errors.New("its " + field.name + " is no URL with a host in it, like https://192.0.2.1:6443")
			}
		}
	}
	return nil
}

// quoted is what a parser of YAML quotes from the text. An unquoted password that begins with an asterisk is an anchor to it.
var quoted = regexp.MustCompile("'[^']*'|\"[^\"]*\"|`[^`]*`")

// hideQuoted takes the texts out of an error about YAML.
func hideQuoted(err error) error {
	if err == nil || !strings.Contains(err.Error(), "yaml: ") {
		return err
	}
	return errors.New(quoted.ReplaceAllString(err.Error(), hidden))
}

// hideSecrets takes out of an error what config keeps secret. What fs says of files stays as it is.
func hideSecrets(err error, config *clientcmdapi.Config) error {
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return err
	}
	text := err.Error()
	for _, secret := range secretsOf(config) {
		text = strings.ReplaceAll(text, secret, hidden)
	}
	return errors.New(text)
}

// secretsOf lists the texts of a kubeconfig that nobody is to read.
func secretsOf(config *clientcmdapi.Config) (list []string) {
	add := func(texts ...string) {
		for _, s := range texts {
			if s != "" {
				list = append(list, s)
			}
		}
	}
	for _, c := range config.Clusters {
		for _, text := range []string{c.Server, c.ProxyURL} {
			if u, err := url.Parse(text); err == nil && u.User != nil {
				add(u.User.String())
				password, _ := u.User.Password()
				add(password)
			}
		}
	}
	for _, u := range config.AuthInfos {
		add(u.Token, u.Password, string(u.ClientKeyData))
		if u.Exec != nil {
			add(u.Exec.Args...)
			for _, e := range u.Exec.Env {
				add(e.Value)
			}
		}
		if u.AuthProvider != nil {
			for _, value := range u.AuthProvider.Config {
				add(value)
			}
		}
	}
	return list
}

// moveUser takes user and password out of the server's URL, which is named in all that is said of it. They are
// sent as they would be from there, unless there are other credentials.
func moveUser(cfg *rest.Config) {
	u, err := url.Parse(cfg.Host)
	if err != nil || u.User == nil {
		return
	}
	if cfg.Username == "" && cfg.BearerToken == "" && cfg.BearerTokenFile == "" && cfg.ExecProvider == nil && cfg.AuthProvider == nil {
		cfg.Username = u.User.Username()
		cfg.Password, _ = u.User.Password()
	}
	u.User = nil
	cfg.Host = u.String()
}

// errProxy stands for errors about a proxy's URL, which have it in their texts, with its password.
var errProxy = errors.New("the proxy's URL in the environment (HTTPS_PROXY or the like) is not valid")

// proxyOf finds the proxy for a request as client-go does: the kubeconfig's, or the environment's.
func proxyOf(cfg *rest.Config) func(*http.Request) (*url.URL, error) {
	find := cfg.Proxy
	if find == nil {
		find = utilnet.NewProxierWithNoProxyCIDR(http.ProxyFromEnvironment)
	}
	return func(r *http.Request) (*url.URL, error) {
		u, err := find(r)
		if err != nil {
			return nil, errProxy
		}
		return u, nil
	}
}
