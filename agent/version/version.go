// Package version says which build of sluice this is.
package version

import (
	"runtime"
	"runtime/debug"
)

// version is set by the build: -ldflags "-X sluice/agent/version.version=v1.2.3".
var version string

// Info describes the build.
type Info struct {
	// Version is a tag, or "devel" in a build without one.
	Version string `json:"version"`
	// Commit is the revision of the source; empty if the build does not know it. It
	// ends in "-dirty" when files differed from the revision.
	Commit string `json:"commit,omitempty"`
	// GoVersion is the Go release, like go1.26.0.
	GoVersion string `json:"goVersion"`
	// Platform is operating system and architecture, like linux/arm64.
	Platform string `json:"platform"`
}

// Get describes the running program.
func Get() Info {
	info := Info{Version: version, GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info.Version == "" {
		info.Version = "devel"
	}
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return info
	}
	dirty := ""
	for _, s := range build.Settings {
		switch {
		case s.Key == "vcs.revision":
			info.Commit = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		case s.Key == "GOARM" && s.Value != "":
			info.Platform += "v" + s.Value[:1]
		}
	}
	if info.Commit != "" {
		info.Commit = info.Commit[:min(len(info.Commit), 12)] + dirty
	}
	return info
}
