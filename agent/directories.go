package agent

import (
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"sluice/agent/config"
)

// overflowUser is who owns what nobody of this user namespace owns, see user_namespaces(7).
const overflowUser = 65534

// warnOfDirectories tells of directories that others than root can change, and by which they could decide where traffic goes, or have
// this process write elsewhere. They work all the same: perhaps they are meant so.
func warnOfDirectories(cfg *config.Config, log *slog.Logger) {
	for _, relied := range []struct{ what, path string }{
		{"status socket", filepath.Dir(cfg.Socket)}, {"cache", cfg.DataDir}, {"manifests", cfg.Manifests}, {"kubeconfig", filepath.Dir(cfg.Kubeconfig)},
	} {
		if relied.path == "" || relied.what == "kubeconfig" && cfg.Kubeconfig == "" {
			continue
		}
		if why := changeable(relied.path, os.Geteuid()); why != "" {
			log.Warn("others can change a directory that this agent relies on", "what", relied.what, "path", relied.path, "cause", why,
				"remedy", "choose a directory that only root can write to, with all above it")
		}
	}
}

// changeable says who else than root and a user can change what a path leads to; "" if nobody can. What is
// not there yet is not judged.
func changeable(path string, user int) string {
	path, err := filepath.Abs(path)
	if err != nil {
		return ""
	}
	whole, err := filepath.EvalSymlinks(path)
	if err != nil {
		whole = path
	}
	for _, p := range []string{path, whole} {
		for at := "/"; ; {
			if why := changeableEntry(at, user, at == whole); why != "" {
				return why
			}
			rest := strings.TrimPrefix(strings.TrimPrefix(p, at), "/")
			if rest == "" {
				break
			}
			next, _, _ := strings.Cut(rest, "/")
			at = filepath.Join(at, next)
		}
	}
	return ""
}

// changeableEntry says so of one directory or link. In a directory with the sticky bit others cannot replace what is not theirs, but
// can make what is not there yet, which counts where last is true.
func changeableEntry(path string, user int, last bool) string {
	info, err := os.Lstat(path)
	if err != nil {
		return ""
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	if owner := int(st.Uid); owner != 0 && owner != user && owner != overflowUser {
		return fmt.Sprintf("%s belongs to user %d", path, owner)
	}
	switch mode := info.Mode(); {
	case mode.Type() == fs.ModeSymlink, mode&fs.ModeSticky != 0 && !last:
	case mode.Perm()&0o002 != 0:
		return path + " can be written by everybody"
	case mode.Perm()&0o020 != 0 && st.Gid != 0:
		return fmt.Sprintf("%s can be written by group %d", path, st.Gid)
	}
	return ""
}
