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
	// Version is a tag, or a tag or revision with what came after it.
	Version string `json:"version"`
	// GoVersion is the Go release, like go1.26.0.
	GoVersion string `json:"goVersion"`
	// Platform is operating system and architecture, like linux/arm64.
	Platform string `json:"platform"`
}

// Get describes the running program.
func Get() Info {
	info := Info{Version: version, GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return info
	}
	if info.Version == "" {
		info.Version = build.Main.Version // what the go command knows of the source, or (devel)
	}
	for _, s := range build.Settings {
		if s.Key == "GOARM" && s.Value != "" {
			info.Platform += "v" + s.Value[:1] // 6 or 7, with ",hardfloat" behind it
		}
	}
	return info
}
