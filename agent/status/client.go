package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// NotRunningError says that no agent listens on the socket.
type NotRunningError struct{ Socket string }

func (e *NotRunningError) Error() string {
	return fmt.Sprintf("no sluice agent is running on %s; start one with `sluice agent`, or name its --socket", e.Socket)
}

// Client asks a running agent. Its methods return a *NotRunningError if there is none.
type Client struct {
	// Socket is the path of the agent's socket.
	Socket string
}

// Timeouts of one question. An agent that is busy with ten thousands of Services answers within the first. The second is for what is
// read in the kernel: 300,000 endpoints take some 5 s here.
const (
	timeout       = 10 * time.Second
	kernelTimeout = 50 * time.Second
)

// maxAnswer is the largest answer that is read. 10,000 Services of ten endpoints make 30 MB.
const maxAnswer = 1 << 30

// dial connects to the agent. What another user than root says in its place, where a socket is in a directory of others, is not
// asked for at all: root would believe it.
func dial(ctx context.Context, socket string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	cred, err := listenerOf(conn)
	if err == nil && cred.Uid != 0 && int(cred.Uid) != os.Geteuid() {
		err = fmt.Errorf("it is served by user %d, who is neither root nor you, and is not believed; name the agent's own --socket", cred.Uid)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// groupOf names the group that may use a socket beside root: ", or as a user of the group x". It is empty if that
// cannot be told, or the group may not.
func groupOf(socket string) string {
	var st unix.Stat_t
	if err := unix.Stat(socket, &st); err != nil || st.Mode&0o060 != 0o060 {
		return ""
	}
	name := strconv.Itoa(int(st.Gid))
	if g, err := user.LookupGroupId(name); err == nil {
		name = g.Name
	}
	return ", or as a user of the group " + name
}

// Status asks how the agent is.
func (c Client) Status(ctx context.Context) (s Status, err error) {
	err = c.get(ctx, pathStatus, &s)
	return s, err
}

// Services asks for the Services that are served.
func (c Client) Services(ctx context.Context) ([]Service, error) {
	var l List[Service]
	err := c.get(ctx, pathServices, &l)
	return l.Items, err
}

// Endpoints asks for the endpoints of all Services.
func (c Client) Endpoints(ctx context.Context) ([]Endpoint, error) {
	var l List[Endpoint]
	err := c.get(ctx, pathEndpoints, &l)
	return l.Items, err
}

// Counts asks what the kernel counted for each Service.
func (c Client) Counts(ctx context.Context) (counts Counts, err error) {
	err = c.get(ctx, pathCounts, &counts)
	return counts, err
}

// Explain asks what becomes of connections. A question that cannot be answered is a *QuestionError.
func (c Client) Explain(ctx context.Context, q Question) ([]Path, error) {
	var l List[Path]
	values := url.Values{"target": {q.Target}, "from": {q.From}, "protocol": {q.Protocol}}
	if q.Live {
		values.Set("live", "1")
	}
	err := c.getWithin(ctx, kernelTimeout, pathExplain+"?"+values.Encode(), &l)
	return l.Items, err
}

func (c Client) get(ctx context.Context, path string, doc any) error {
	return c.getWithin(ctx, timeout, path, doc)
}

func (c Client) getWithin(ctx context.Context, timeout time.Duration, path string, doc any) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dial(ctx, c.Socket)
		},
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://sluice"+path, nil)
	if err != nil {
		return fmt.Errorf("ask the agent: %w", err)
	}
	response, err := transport.RoundTrip(request)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return &NotRunningError{c.Socket}
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("ask the agent on %s: %w; run this as root%s", c.Socket, fs.ErrPermission, groupOf(c.Socket))
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("ask the agent on %s: no answer within %v; its log may say why", c.Socket, timeout)
	case err != nil:
		return fmt.Errorf("ask the agent on %s: %w", c.Socket, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10)) // what could be read says the most there is to say
		if response.StatusCode == http.StatusBadRequest {
			return &QuestionError{strings.TrimSpace(string(text))}
		}
		if response.StatusCode == http.StatusNotFound {
			return fmt.Errorf("ask the agent on %s: it does not know this question, as it is of another version than this command; restart it", c.Socket)
		}
		return fmt.Errorf("ask the agent on %s: %s: %s", c.Socket, response.Status, strings.TrimSpace(string(text)))
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(doc); err != nil {
		return fmt.Errorf("read the agent's answer: %w", err)
	}
	return nil
}
