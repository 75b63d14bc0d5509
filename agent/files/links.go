package files

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxLinks is the number of symbolic links that are followed, as in the kernel (path_resolution(7)).
const maxLinks = 40

// linkDirs returns the directories in which something decides where an absolute
// path leads: those that hold the symbolic links met on the way, and last the one
// that holds what the path ends at. In a volume that kubelet fills, where a.yaml
// leads through ..data to a directory with a date, they are the volume itself and that directory.
func linkDirs(path string) []string {
	var dirs []string
	todo := steps(path)
	at := "/"
	for links := 0; len(todo) > 0; {
		name := todo[0]
		todo = todo[1:]
		if name == ".." {
			at = filepath.Dir(at)
			continue
		}
		target, err := os.Readlink(filepath.Join(at, name))
		switch {
		case err != nil && len(todo) == 0: // it is no link, or is not there
			return append(dirs, at)
		case err != nil:
			at = filepath.Join(at, name)
			continue
		}
		if links++; links > maxLinks {
			break
		}
		dirs = append(dirs, at)
		if filepath.IsAbs(target) {
			at = "/"
		}
		todo = append(steps(target), todo...)
	}
	return dirs
}

// steps returns the names in a path that lead anywhere.
func steps(path string) []string {
	return slices.DeleteFunc(strings.Split(path, "/"), func(name string) bool { return name == "" || name == "." })
}
