package e2e

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"sluice/agent/source"
	"sluice/agent/status"
	"sluice/test/cluster"
	"sluice/test/rig"
)

// answers are what stands between a node and its server, or the server itself, may say instead of the truth.
func (e *badEnv) answers() []badAnswer {
	// A watch is refused so that everything has to be read anew.
	lists := func(a answer) answer {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Query().Get("watch") == "true" {
				http.Error(w, "too old", http.StatusGone)
				return true
			}
			return a(w, r)
		}
	}
	page := func(header map[string]string, text string) answer {
		return lists(func(w http.ResponseWriter, _ *http.Request) bool {
			for name, value := range header {
				w.Header().Set(name, value)
			}
			_, _ = io.WriteString(w, text)
			return true
		})
	}
	code := func(code int, header ...string) answer {
		return func(w http.ResponseWriter, _ *http.Request) bool {
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			http.Error(w, "as the test wants it", code)
			return true
		}
	}
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write(bytes.Repeat([]byte("k8s\x00"), 10_000))
	_ = z.Close()
	return []badAnswer{
		{"a captive portal", page(map[string]string{"Content-Type": "text/html"}, "<html>Please log in</html>"), "html"},
		{"half of a gzip", page(map[string]string{"Content-Type": "application/vnd.kubernetes.protobuf", "Content-Encoding": "gzip"}, zipped.String()[:zipped.Len()/2]), `"\x1f\x8b`},
		{"JSON", page(map[string]string{"Content-Type": "application/json"}, `{"note":"json","kind":"ServiceList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`), "json"},
		{"another kind", lists(func(w http.ResponseWriter, r *http.Request) bool {
			r.URL.Path = map[string]string{cluster.ServicesPath: cluster.SlicesPath, cluster.SlicesPath: cluster.ServicesPath}[r.URL.Path]
			r.URL.RawQuery = strings.ReplaceAll(r.URL.Query().Encode(), "fieldSelector=", "was=")
			e.between.Pass(w, r)
			return true
		}), "in place of a"},
		{"401", code(401), "(401)"},
		{"429", code(429, "Retry-After", "1"), "429"},
		{"500", code(500), "500"},
		{"503", code(503), "503"},
	}
}

type answer = func(http.ResponseWriter, *http.Request) bool

type badAnswer struct {
	name   string
	answer answer
	says   string
}

// atMost is how many requests in a second are not a storm: each kind asks again after a quarter of a second, then more and more
// seldom, twice in 5 s.
const atMost = 8

// testAnswers lets the agent have nothing but wrong answers, later and at the start, with a cache and without.
func testAnswers(e *badEnv) {
	e.apply(e.service("web", "vip2"))
	e.apply(e.slices("web", "pod2")...)
	answers := e.answers()
	e.between.Answer(answers[0].answer)
	e.Start()
	e.AwaitProblem(inStep, answers[0].says)
	if s, err := e.Status(); err != nil || s.Synced || len(s.Families) > 0 && !s.Families[0].LastSync.IsZero() {
		e.T.Errorf("the agent believes a captive portal: %+v, %v", s, err)
	}
	e.between.Answer(nil)
	e.Reach(inStep, "pod1 tcp vip2:80", "pod2:8080")
	e.Await(inStep, "all objects", rig.Settled)
	clients := e.Connect(20*time.Millisecond, "pod1 tcp vip2:80")
	pods := []string{"pod3", "pod1"}
	e.apply(e.service("new", "vip3"))
	for i, a := range answers {
		e.between.Answer(a.answer)
		begun, cpu := time.Now(), e.CPU()
		e.between.EndWatches()
		e.AwaitProblem(inStep, a.says)
		e.apply(e.slices("new", pods[i%2])...)
		if i == 1 { // from the cache
			e.Stop()
			e.Start()
			e.AwaitProblem(inStep, a.says)
			cpu = 0
		}
		time.Sleep(2 * time.Second)
		lasted := time.Since(begun)
		n, used := len(e.between.Requests(begun)), e.CPU()-cpu
		e.T.Logf("%s: %d requests and %v of CPU in %v", a.name, n, used, lasted.Round(time.Millisecond))
		if n > int(lasted.Seconds()*atMost)+4*len(source.Kinds) {
			e.T.Errorf("%s: %d requests in %v: no pauses?", a.name, n, lasted)
		}
		e.between.Answer(nil)
		mended := time.Now()
		e.Reach(soonInStep, "pod2 tcp vip3:80", pods[i%2]+":8080")
		e.T.Logf("%s: in step after %v", a.name, time.Since(mended).Round(time.Millisecond))
	}
	e.Await(3*time.Minute, "no problems", func(s status.Status) bool { return len(s.Problems) == 0 }) // they stay for longer each time that they come back
	rig.EndUndisturbed(e.T, clients, "pod2:8080")
}

// testClosedWatches closes all watches each second, then at once, while objects change, and gives errors in turns.
func testClosedWatches(e *badEnv) {
	e.apply(e.service("web", "vip2"))
	e.apply(e.slices("web", "pod2")...)
	e.apply(e.service("new", "vip3"))
	e.Run()
	clients := e.Connect(20*time.Millisecond, "pod1 tcp vip2:80")
	pods := []string{"pod3", "pod1"}
	during := func(what string, lasts time.Duration, each func(i int)) {
		begun, cpu := time.Now(), e.CPU()
		i := 0
		for ; time.Since(begun) < lasts; i++ {
			e.apply(e.slices("new", pods[i%2])...)
			time.Sleep(100 * time.Millisecond)
			each(i)
		}
		lists, watches := 0, 0
		for _, r := range e.between.Requests(begun) {
			switch {
			case r.Watch():
				watches++
			case r.Query.Get("limit") == "":
				lists++
			}
		}
		e.T.Logf("%s: %d lists and %d watches in %v, CPU %v", what, lists, watches, time.Since(begun).Round(time.Second), e.CPU()-cpu)
		if what != errorsInTurn && lists > 0 {
			e.T.Errorf("%s: everything was read %d times", what, lists)
		}
		if watches > int(lasts.Seconds()*atMost)+4*len(source.Kinds) {
			e.T.Errorf("%s: %d watches: no pauses?", what, watches)
		}
		e.between.Answer(nil)
		e.Reach(soonInStep, "pod2 tcp vip3:80", pods[(i-1)%2]+":8080")
	}
	during("closed each second", 8*time.Second, func(i int) {
		if i%8 == 7 {
			e.between.EndWatches()
		}
	})
	e.between.Answer(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("watch") == "true" {
			w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf;stream=watch")
			return true
		}
		return false
	})
	e.between.EndWatches()
	during("closed at once", 8*time.Second, func(int) {})
	if e.Logged("the server closes the watch at once") == 0 {
		e.T.Error("the log does not say that watches are closed at once")
	}
	turn := 0
	codes := []int{429, 500, 410, 503, 200}
	e.between.Answer(func(w http.ResponseWriter, r *http.Request) bool {
		turn++
		code := codes[turn%len(codes)]
		if code == 200 {
			return false
		}
		if code == 429 {
			w.Header().Set("Retry-After", "1")
		}
		http.Error(w, fmt.Sprint(code), code)
		return true
	})
	during(errorsInTurn, 12*time.Second, func(i int) {
		if i%10 == 9 {
			e.between.EndWatches()
		}
	})
	rig.EndUndisturbed(e.T, clients, "pod2:8080")
}

const errorsInTurn = "errors in turn"

// testTrust has a server that shows another authority's certificate, or one that expired, and one that refuses the token or
// one kind of object, and takes all back.
func testTrust(e *badEnv) {
	e.apply(e.service("web", "vip2"))
	e.apply(e.slices("web", "pod2")...)
	forbid := func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == cluster.SlicesPath {
			http.Error(w, "endpointslices is forbidden", http.StatusForbidden)
			return true
		}
		return false
	}
	// Without one kind nothing can be served, and what is there stays.
	e.between.Answer(forbid)
	e.Start()
	e.AwaitProblem(inStep, "endpointslices", "403", "system:node-proxier")
	if s, err := e.Status(); err != nil || s.Synced {
		e.T.Errorf("in step without EndpointSlices: %+v, %v", s, err)
	}
	e.between.Answer(nil)
	e.Reach(inStep, "pod1 tcp vip2:80", "pod2:8080")
	e.Await(inStep, "all objects", rig.Settled)
	clients := e.Connect(20*time.Millisecond, "pod1 tcp vip2:80")
	at := e.between.Addr()
	foreign, err := cluster.NewAuthority()
	e.must(err)
	stranger, err := foreign.Valid("kube-apiserver", at)
	e.must(err)
	expired, err := e.cluster.CA.Issue("kube-apiserver", time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour), at)
	e.must(err)
	good, err := e.cluster.CA.Valid("kube-apiserver", at)
	e.must(err)
	e.apply(e.service("new", "vip3"))
	listen := func(p cluster.Pair) {
		e.must(e.between.Close())
		e.must(e.between.Listen(p))
	}
	for i, test := range []struct {
		says        string
		spoil, mend func()
	}{
		{"not signed by the kubeconfig's certificate authority", func() { listen(stranger) }, func() { listen(good) }},
		{"the server's certificate is not valid now", func() { listen(expired) }, func() { listen(good) }},
		{"endpointslices", func() { e.between.Answer(forbid); e.between.EndWatches() }, func() { e.between.Answer(nil) }},
	} {
		test.spoil()
		e.AwaitProblem(inStep, test.says)
		pod := []string{"pod3", "pod1"}[i%2]
		e.apply(e.slices("new", pod)...)
		time.Sleep(2 * time.Second)
		test.mend()
		mended := time.Now()
		e.Reach(soonInStep, "pod2 tcp vip3:80", pod+":8080")
		e.T.Logf("%s: in step after %v", test.says, time.Since(mended).Round(time.Millisecond))
	}
	rig.EndUndisturbed(e.T, clients, "pod2:8080")
}
