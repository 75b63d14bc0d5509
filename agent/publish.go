package agent

import (
	corev1 "k8s.io/api/core/v1"

	"sluice/proxy"
)

// publisher tells others what is in the kernel: the health servers, and the
// listeners for NodePorts on localhost. They are told after the kernel is.
type publisher struct{}

func (p *publisher) plan(proxy.Family, proxy.ServiceName, *proxy.ServicePlan) {}
func (p *publisher) node([]*proxier, *corev1.Node)                            {}
func (p *publisher) written(*proxier, bool)                                   {}
