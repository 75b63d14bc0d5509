package status

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// none stands for an empty cell, as with kubectl.
const none = "<none>"

// WriteServices writes a table in kubectl's style. wide adds columns.
func WriteServices(w io.Writer, services []Service, wide bool, now time.Time) error {
	t := newTable()
	header := []string{"NAMESPACE", "NAME", "TYPE", "CLUSTER-IP", "EXTERNAL-IP", "PORT(S)", "ENDPOINTS", "AGE"}
	if wide {
		header = append(header, "INT-POLICY", "EXT-POLICY", "AFFINITY", "SOURCE-RANGES", "NOT-SERVED")
	}
	t.row(header...)
	for i := range services {
		s := &services[i]
		clusterIPs := s.ClusterIPs
		if !wide && len(clusterIPs) > 1 {
			clusterIPs = clusterIPs[:1]
		}
		created := "<unknown>"
		if !s.Created.IsZero() {
			created = age(s.Created, now)
		}
		row := []string{s.Namespace, s.Name, s.Type, cell(clusterIPs), cell(s.ExternalIPs), s.PortList(), s.endpoints(), created}
		if wide {
			affinity := none
			if s.AffinitySeconds > 0 {
				affinity = duration(time.Duration(s.AffinitySeconds) * time.Second)
			}
			row = append(row, s.InternalTrafficPolicy, cell(nonEmpty(s.ExternalTrafficPolicy)), affinity, cell(s.SourceRanges), strings.Join(s.NotServed, "; "))
		}
		t.row(row...)
	}
	return t.write(w)
}

// PortList is kubectl's form: 80/TCP,443:30443/TCP.
func (s *Service) PortList() string {
	var b strings.Builder
	for i, p := range s.Ports {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(int(p.Port)))
		if p.NodePort != 0 {
			b.WriteString(":" + strconv.Itoa(int(p.NodePort)))
		}
		b.WriteString("/" + p.Protocol)
	}
	return b.String()
}

// endpoints is "used/total", once if all families agree, else for each family.
func (s *Service) endpoints() string {
	return perFamily(s.Endpoints, func(c *EndpointCount) (int, int) { return c.Used, c.Total })
}

// perFamily writes "part/whole", once if all families agree, else for each.
func perFamily[T any](families []T, count func(*T) (part, whole int)) string {
	if len(families) == 0 {
		return none
	}
	var cells []string
	for i := range families {
		part, whole := count(&families[i])
		cells = append(cells, fmt.Sprintf("%d/%d", part, whole))
	}
	for _, c := range cells {
		if c != cells[0] {
			return strings.Join(cells, ",")
		}
	}
	return cells[0]
}

// WriteEndpoints writes a table in kubectl's style. wide adds columns.
func WriteEndpoints(w io.Writer, endpoints []Endpoint, wide bool) error {
	t := newTable()
	header := []string{"NAMESPACE", "SERVICE", "PORT", "ADDRESS", "NODE", "READY", "SERVING", "TERMINATING", "LOCAL", "USED"}
	if wide {
		header = append(header, "HINTS")
	}
	t.row(append(header, "REASON")...)
	for i := range endpoints {
		e := &endpoints[i]
		port := e.Protocol
		if e.Port != "" {
			port = e.Port + "/" + port
		}
		row := []string{e.Namespace, e.Service, port, e.Address.String(), cell(nonEmpty(e.Node)),
			yesNo(e.Ready), yesNo(e.Serving), yesNo(e.Terminating), yesNo(e.Local), string(e.Used)}
		if wide {
			row = append(row, cell(append(prefix("zone=", e.HintZones), prefix("node=", e.HintNodes)...)))
		}
		t.row(append(row, e.Reason)...)
	}
	return t.write(w)
}

// table aligns its rows in columns when it is written.
type table struct {
	rows *tabwriter.Writer
	text strings.Builder
}

func newTable() *table {
	t := &table{}
	t.rows = tabwriter.NewWriter(&t.text, 6, 4, 3, ' ', 0) // kubectl's distances
	return t
}

func (t *table) row(cells ...string) {
	fmt.Fprintln(t.rows, strings.Join(cells, "\t")) // a Builder has no errors
}

// write leaves out the blanks at the ends of lines that an empty last cell makes.
func (t *table) write(w io.Writer) error {
	t.rows.Flush()
	for line := range strings.Lines(t.text.String()) {
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

func cell(values []string) string {
	if len(values) == 0 {
		return none
	}
	return strings.Join(values, ",")
}

func nonEmpty(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

func prefix(with string, values []string) []string {
	var out []string
	for _, v := range values {
		out = append(out, with+v)
	}
	return out
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
