package cmd

import (
	"fmt"
	"io"
	"time"

	"github.com/urfave/cli/v2"

	"sluice/agent/status"
)

// Get lists what the agent serves.
func Get() *cli.Command {
	flags := newConfigFlags("socket", "config")
	output := outputFlag("wide, json or yaml; a table without", "wide", "json", "yaml")
	namespace := &flag{name: "namespace", alias: "n", placeholder: "NAME", usage: "only in this namespace; without, in all"}
	all := &flag{name: "all-namespaces", alias: "A", usage: "in all namespaces, which is the default too"}
	return &cli.Command{
		Name:      "get",
		Usage:     "list the services or endpoints that the agent serves",
		UsageText: "sluice get services|endpoints [SERVICE] [-n NAMESPACE] [-o wide|json|yaml]",
		Description: "Asks the running agent on its socket. \"services\" (svc) shows in ENDPOINTS how\n" +
			"many endpoints new connections go to, of how many there are; where IPv4 and\n" +
			"IPv6 differ, both. \"endpoints\" (ep) shows for each endpoint whether this node\n" +
			"uses it, and if not, why.\n\n" +
			"Exit codes: 0 success, 1 no such service or no answer, 2 wrong arguments,\n" +
			"3 no agent is running.\n\n" +
			"Examples:\n" +
			"   sluice get services\n" +
			"   sluice get svc web -n shop -o yaml\n" +
			"   sluice get endpoints web -o wide",
		Flags: flags.and(output, namespace, all),
		BashComplete: complete(func(c *cli.Context) []string {
			switch c.NArg() {
			case 0:
				return []string{"services", "endpoints"}
			case 1:
				return serviceNames(c, flags, namespace.last())
			}
			return nil
		}),
		Action: func(c *cli.Context) error {
			if err := checkValue(output); err != nil {
				return err
			}
			if c.NArg() > 2 {
				return unexpectedArgument(c.Args().Get(2))
			}
			if all.on() && namespace.last() != "" {
				return usageError(fmt.Errorf("--namespace and --all-namespaces exclude each other"))
			}
			client, err := newClient(flags)
			if err != nil {
				return err
			}
			wide := output.last() == "wide"
			switch kind := c.Args().First(); kind {
			case "services", "service", "svc":
				services, err := client.Services(c.Context)
				if err != nil {
					return askError(err)
				}
				services, err = choose(services, namespace.last(), c.Args().Get(1), func(s *status.Service) (string, string) { return s.Namespace, s.Name })
				if err != nil {
					return err
				}
				return writeList(c, output.last(), services, func(w io.Writer) error {
					return status.WriteServices(w, services, wide, time.Now())
				})
			case "endpoints", "endpoint", "ep":
				endpoints, err := client.Endpoints(c.Context)
				if err != nil {
					return askError(err)
				}
				of := c.Args().Get(1)
				endpoints, err = choose(endpoints, namespace.last(), of, func(e *status.Endpoint) (string, string) { return e.Namespace, e.Service })
				if err != nil {
					return withoutEndpoints(c, client, output.last(), namespace.last(), of, err)
				}
				return writeList(c, output.last(), endpoints, func(w io.Writer) error {
					return status.WriteEndpoints(w, endpoints, wide)
				})
			case "":
				return usageError(fmt.Errorf("say what to get: services or endpoints"))
			default:
				return usageError(fmt.Errorf("cannot get %q, only services and endpoints", kind))
			}
		},
	}
}

// choose keeps the items of a namespace and a Service; an empty string matches all.
// It is an error if a Service is named and nothing is left.
func choose[T any](items []T, namespace, service string, key func(*T) (namespace, service string)) ([]T, error) {
	chosen := make([]T, 0, len(items))
	for i := range items {
		ns, name := key(&items[i])
		if (namespace == "" || ns == namespace) && (service == "" || name == service) {
			chosen = append(chosen, items[i])
		}
	}
	if service != "" && len(chosen) == 0 {
		where := "any namespace"
		if namespace != "" {
			where = "namespace " + namespace
		}
		return nil, fmt.Errorf("nothing found for service %q in %s", service, where)
	}
	return chosen, nil
}

// withoutEndpoints says of a Service that exists that it has no endpoints. Of another it returns notFound.
func withoutEndpoints(c *cli.Context, client status.Client, format, namespace, service string, notFound error) error {
	services, err := client.Services(c.Context)
	if err != nil {
		return askError(err)
	}
	services, err = choose(services, namespace, service, func(s *status.Service) (string, string) { return s.Namespace, s.Name })
	if err != nil {
		return notFound
	}
	if format == "json" || format == "yaml" {
		return writeList(c, format, []status.Endpoint{}, nil)
	}
	for i := range services {
		if _, err := fmt.Fprintf(c.App.ErrWriter, "%s/%s has no endpoints\n", services[i].Namespace, services[i].Name); err != nil {
			return err
		}
	}
	return nil
}

// writeList writes items as a document or, for people, as a table.
func writeList[T status.Service | status.Endpoint](c *cli.Context, format string, items []T, table func(io.Writer) error) error {
	switch {
	case format == "json", format == "yaml":
		return writeDocument(c.App.Writer, format, status.List[T]{Items: items})
	case len(items) == 0:
		_, err := fmt.Fprintln(c.App.ErrWriter, "Nothing found.")
		return err
	}
	return table(c.App.Writer)
}

// serviceNames asks the agent for the names of Services, for completion: without
// an agent there are none.
func serviceNames(c *cli.Context, flags configFlags, namespace string) []string {
	client, err := newClient(flags)
	if err != nil {
		return nil
	}
	services, err := client.Services(c.Context)
	if err != nil {
		return nil
	}
	var names []string
	for i := range services {
		if namespace == "" || services[i].Namespace == namespace {
			names = append(names, services[i].Name)
		}
	}
	return names
}
