package metrics

import (
	"errors"
	"net/http"
	"runtime"
	"runtime/pprof"
	"strconv"
	"time"
)

const (
	defaultProfile = 30 // seconds, as in net/http/pprof
	maxProfile     = 300
)

// addProfiles serves the profiles that `go tool pprof` asks for, at the paths that it knows. The
// package net/http/pprof is not used: to import it is to serve them always.
func addProfiles(mux *http.ServeMux) {
	mux.HandleFunc("GET /debug/pprof/profile", serveCPUProfile)
	for _, name := range []string{"heap", "allocs", "goroutine"} {
		mux.HandleFunc("GET /debug/pprof/"+name, func(w http.ResponseWriter, r *http.Request) {
			debug, _ := strconv.Atoi(r.FormValue("debug")) // 0: the binary form
			contentType := "application/octet-stream"
			if debug != 0 {
				contentType = "text/plain; charset=utf-8"
			}
			w.Header().Set("Content-Type", contentType)
			w.Header().Set("X-Content-Type-Options", "nosniff")
			_ = pprof.Lookup(name).WriteTo(w, debug) // fails only if the client is gone
		})
	}
}

func serveCPUProfile(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.Atoi(r.FormValue("seconds"))
	if err != nil || n <= 0 {
		n = defaultProfile
	}
	d := time.Duration(min(n, maxProfile)) * time.Second
	// Longer than other answers may take; the end of the time for reading would end the request, too.
	c, until := http.NewResponseController(w), time.Now().Add(d+5*time.Second)
	if err := errors.Join(c.SetReadDeadline(until), c.SetWriteDeadline(until)); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Content-Type", "application/octet-stream")
	if err := pprof.StartCPUProfile(w); err != nil {
		http.Error(w, "another CPU profile is being made: "+err.Error(), http.StatusConflict)
		return
	}
	defer pprof.StopCPUProfile()
	select {
	case <-time.After(d):
	case <-r.Context().Done():
	}
}

// AllowProfiling says whether memory profiles are wanted. It is to be called before anything else is done:
// a Go program that can make such a profile takes samples from its start on, and keeps them.
func AllowProfiling(on bool) {
	if !on {
		runtime.MemProfileRate = 0
	}
}
