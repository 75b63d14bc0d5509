package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"sluice/test/process"
)

// start starts the server of a name; its log is appended to a file of that name.
func (c *Cluster) start(name string, args ...string) error {
	if c.running[name] != nil {
		return fmt.Errorf("start %s: it runs already", name)
	}
	log, err := os.OpenFile(c.file(name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(c.programs, name), args...)
	cmd.Stdout, cmd.Stderr = log, log
	p, err := process.Start(c.ns, cmd)
	if err != nil {
		return err
	}
	c.running[name] = p
	return nil
}

// endLimit is how long a server may take to end when it is asked to.
const endLimit = 30 * time.Second

// end ends a server with a signal. One that does not run is no error.
func (c *Cluster) end(name string, signal syscall.Signal) error {
	p := c.running[name]
	if p == nil {
		return nil
	}
	delete(c.running, name)
	return p.End(signal, endLimit)
}

// KillServer ends kube-apiserver at once.
func (c *Cluster) KillServer() error { return c.end("kube-apiserver", syscall.SIGKILL) }

// StopEtcd ends etcd as an administrator does.
func (c *Cluster) StopEtcd() error { return c.end("etcd", syscall.SIGTERM) }

// KillEtcd ends etcd at once.
func (c *Cluster) KillEtcd() error { return c.end("etcd", syscall.SIGKILL) }

// EnsureRunning starts what does not run.
func (c *Cluster) EnsureRunning(ctx context.Context) error {
	if c.running["etcd"] == nil {
		if err := c.StartEtcd(); err != nil {
			return err
		}
	}
	if c.running["kube-apiserver"] == nil {
		return c.StartServer(ctx)
	}
	return nil
}

// ServerLog returns up to n bytes of the end of kube-apiserver's log.
func (c *Cluster) ServerLog(n int) string {
	text, err := os.ReadFile(c.file("kube-apiserver.log"))
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-n):])
}

// SaveEtcd copies etcd's data under a name. Neither server may run meanwhile.
func (c *Cluster) SaveEtcd(name string) error {
	return os.CopyFS(c.file("saved-"+name), os.DirFS(c.file("etcd")))
}

// ForgetEtcd removes etcd's data: what starts then is another cluster. Neither server may run meanwhile.
func (c *Cluster) ForgetEtcd() error { return os.RemoveAll(c.file("etcd")) }

// RestoreEtcd brings back the data of SaveEtcd. Neither server may run meanwhile.
func (c *Cluster) RestoreEtcd(name string) error {
	if err := c.ForgetEtcd(); err != nil {
		return err
	}
	return os.CopyFS(c.file("etcd"), os.DirFS(c.file("saved-"+name)))
}

func (c *Cluster) file(name string) string { return filepath.Join(c.dir.Path, name) }
