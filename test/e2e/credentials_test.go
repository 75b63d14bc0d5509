package e2e

import (
	"time"

	"sluice/test/cluster"
	"sluice/test/rig"
)

// testToken rotates the token: the server knows another one, and the kubeconfig follows, in pieces.
func testToken(e *env) {
	e.apply(e.service("web", "vip2"))
	e.apply(e.slices("web", "pod2")...)
	e.Run()
	clients := e.Connect(20*time.Millisecond, "pod1 tcp vip2:80")
	e.T.Cleanup(func() {
		e.must(e.cluster.SetTokens(cluster.ProxyToken))
		e.must(e.cluster.KillServer()) // the next test needs it with this token
	})
	e.must(e.cluster.SetTokens("another-token"))
	e.restartServer()
	e.AwaitProblem(inStep, "401")
	e.apply(e.service("new", "vip3"))
	e.apply(e.slices("new", "pod3")...)

	text := e.cluster.TokenKubeconfig("another-token")
	e.writeKubeconfig("")
	time.Sleep(time.Second)
	e.writeKubeconfig(text[:len(text)/2])
	time.Sleep(2 * time.Second)
	e.Alive()
	e.writeKubeconfig(text)
	e.Reach(inStep, "pod1 tcp vip3:80", "pod3:8080")
	e.AwaitNoProblem(inStep)
	rig.EndUndisturbed(e.T, clients, "pod2:8080")
}

// testCertificate lets the client certificate expire, and gives the agent another one.
func testCertificate(e *env) {
	e.apply(e.service("web", "vip2"))
	e.apply(e.slices("web", "pod2")...)
	const lives = 15 * time.Second
	short, err := e.cluster.CA.Issue(cluster.ProxyUser, time.Now().Add(-time.Hour), time.Now().Add(lives))
	e.must(err)
	expired := time.After(lives)
	e.writeKubeconfig(e.cluster.CertKubeconfig(short))
	e.Run()
	clients := e.Connect(20*time.Millisecond, "pod1 tcp vip2:80")
	<-expired
	e.restartServer() // a connection that is open stays so
	e.AwaitProblem(inStep, "certificate", "expired")
	e.apply(e.service("new", "vip3"))
	e.apply(e.slices("new", "pod3")...)
	long, err := e.cluster.CA.Valid(cluster.ProxyUser)
	e.must(err)
	e.writeKubeconfig(e.cluster.CertKubeconfig(long))
	e.Reach(inStep, "pod1 tcp vip3:80", "pod3:8080")
	e.AwaitNoProblem(inStep)
	rig.EndUndisturbed(e.T, clients, "pod2:8080")
}
