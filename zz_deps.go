package main

import (
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/google/nftables/expr"
	_ "github.com/jsimonetti/rtnetlink/v2"
	_ "github.com/mdlayher/netlink"
	_ "github.com/ti-mo/conntrack"
	_ "github.com/ti-mo/netfilter"
	_ "github.com/urfave/cli/v2"
	_ "github.com/vishvananda/netns"
	_ "golang.org/x/sys/unix"
	_ "k8s.io/api/core/v1"
	_ "k8s.io/api/discovery/v1"
	_ "k8s.io/api/networking/v1"
	_ "k8s.io/apimachinery/pkg/util/validation"
	_ "k8s.io/apimachinery/pkg/util/validation/field"
	_ "sigs.k8s.io/json"
	_ "sigs.k8s.io/yaml"
	_ "go.yaml.in/yaml/v2"
)
