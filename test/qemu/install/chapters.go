package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"
)

// pod is a unit that makes a pod, as far as a Service sees one: a namespace with a web server.
const pod = `
cat >/usr/local/sbin/pod <<'END'
#!/bin/sh
set -e
ip netns add pod
ip link add pod0 type veth peer name eth0 netns pod
ip address add 10.42.0.1/24 dev pod0
ip link set pod0 up
ip -n pod link set lo up
ip -n pod link set eth0 up
ip -n pod address add 10.42.0.2/24 dev eth0
ip -n pod route add default via 10.42.0.1
exec ip netns exec pod busybox httpd -f -p 8080 -h /srv
END
chmod 755 /usr/local/sbin/pod
echo hello >/srv/index.html
cat >/etc/systemd/system/pod.service <<'END'
[Service]
ExecStart=/usr/local/sbin/pod
[Install]
WantedBy=multi-user.target
END
systemctl enable --now pod
mkdir -p /var/lib/rancher/k3s/agent
`

// files lists what an installation could leave.
const files = `find / -xdev \( -path /proc -o -path /sys -o -path /run -o -path /tmp -o -path /var/log -o -path /var/tmp -o -path /var/lib/systemd -o -path /root \) -prune -o -print | sort`

func (s *story) switchOn(ctx context.Context) error {
	if err := s.guest.start(ctx); err != nil {
		return err
	}
	s.say("it runs commands")
	if _, err := s.guest.run(ctx, pod+"cat >/var/lib/rancher/k3s/agent/kubeproxy.kubeconfig <<'END'\n"+kubeconfig(s.cluster)+"END\n"); err != nil {
		return err
	}
	if err := s.guest.await(ctx, time.Minute, func() error { return s.get(ctx, podIP+":8080") }); err != nil {
		return err
	}
	if s.get(ctx, clusterIP) == nil {
		return errors.New("the Service is reachable without a proxy")
	}
	var err error
	s.before, err = s.guest.run(ctx, files)
	return err
}

// get asks for the Service's page at an address, from the machine.
func (s *story) get(ctx context.Context, address string) error {
	out, err := s.guest.run(ctx, "curl -sS --max-time 5 http://"+address+"/")
	if err == nil && out != "hello\n" {
		err = fmt.Errorf("%s answers %q", address, out)
	}
	return err
}

// reachable checks the Service from the machine, and from outside by its NodePort.
func (s *story) reachable(ctx context.Context, within time.Duration) error {
	if err := s.guest.await(ctx, within, func() error { return s.get(ctx, clusterIP) }); err != nil {
		return err
	}
	client := http.Client{Timeout: 10 * time.Second}
	return s.guest.await(ctx, within, func() error {
		resp, err := client.Get("http://127.0.0.1:" + s.guest.nodePort)
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("the NodePort answers %s", resp.Status)
		}
		return errors.Join(err, resp.Body.Close())
	})
}

// times says when things happened, by the kernel's clock.
const times = `journalctl -b -o short-monotonic --no-pager -u sluice -u systemd-networkd | grep -E 'starting|proxy mode|rules written|objects are known|cache|Start|Gained carrier|API server' | cut -c1-230
systemctl show sluice -p ActiveState -p MemoryCurrent -p ActiveEnterTimestampMonotonic; grep -E 'VmHWM|VmRSS|RssAnon' /proc/$(systemctl show -P MainPID sluice)/status`

func (s *story) installFirst(ctx context.Context) error {
	out, err := s.guest.run(ctx, s.install+"sh -s - --cluster-cidr 10.42.0.0/16")
	s.say("%s", out)
	if err != nil {
		return err
	}
	if err := s.reachable(ctx, bootLimit); err != nil {
		return err
	}
	s.say("the Service is reachable")
	out, err = s.guest.run(ctx, times+"\nsystemd-analyze security sluice --no-pager | tail -n 1")
	s.say("%s", out)
	if err != nil {
		return err
	}
	return s.explained(ctx)
}

// explained asks the agent, which has few rights as a unit, where packets go and what differs; and once more with a firewall in the
// way, where the machine has one of nftables or of iptables.
func (s *story) explained(ctx context.Context) error {
	const ask = "sluice diff && sluice explain default/web --live --from 10.42.0.2"
	out, err := s.guest.run(ctx, ask)
	if err != nil {
		return fmt.Errorf("explain: %w\n%s", err, out)
	}
	if strings.Contains(out, "not known") || strings.Contains(out, "FIREWALL") {
		return fmt.Errorf("explain sees a firewall: %s", out)
	}
	for _, wall := range []struct{ program, up, down string }{
		{"nft", "nft 'add table ip wall; add chain ip wall c { type filter hook forward priority 5; policy drop; }'", "nft delete table ip wall"},
		{"iptables", "iptables -P FORWARD DROP", "iptables -P FORWARD ACCEPT"},
	} {
		out, err = s.guest.run(ctx, fmt.Sprintf("command -v %s >/dev/null || exit 0; %s && %s; %s", wall.program, wall.up, ask, wall.down))
		if err != nil {
			return fmt.Errorf("explain with a firewall of %s: %w\n%s", wall.program, err, out)
		}
		if out != "" && !strings.Contains(out, "A FIREWALL DROPS IT: ") {
			return fmt.Errorf("explain with a firewall of %s does not name it: %s", wall.program, out)
		}
		if out == "" {
			s.say("the machine has no %s", wall.program)
			continue
		}
		s.say("%s", out)
	}
	return nil
}

// synced waits until the agent has heard everything from the server, and is healthy.
func (s *story) synced(ctx context.Context) error {
	return s.guest.await(ctx, 2*time.Minute, func() error {
		_, err := s.guest.run(ctx, `sluice status -o json | tr -d ' \n' | grep '"synced":true' >/dev/null; sluice status >/dev/null`)
		return err
	})
}

func (s *story) restartAlone(ctx context.Context) error {
	if err := s.cluster.KillServer(); err != nil {
		return err
	}
	if err := s.guest.restart(ctx); err != nil {
		return err
	}
	if err := s.reachable(ctx, bootLimit); err != nil {
		return err
	}
	out, err := s.guest.run(ctx, times+`
sluice status -o json | tr -d ' \n' | grep -o '"synced":[a-z]*'`)
	s.say("%s", out)
	if err == nil && !strings.Contains(out, `"synced":false`) {
		err = errors.New("the agent says that it has heard from the server, which is gone")
	}
	if err != nil {
		return err
	}
	s.say("the Service is reachable, and the API server was not reached")
	if err := s.cluster.StartServer(ctx); err != nil {
		return err
	}
	if err := s.synced(ctx); err != nil {
		return err
	}
	s.say("the API server is back, and followed")
	return nil
}

func (s *story) powerCuts(ctx context.Context, cuts int) error {
	for i := range cuts {
		changing, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- churn(changing, s.cluster) }()
		time.Sleep(3*time.Second + rand.N(5*time.Second))
		s.guest.cutPower()
		stop()
		if err := <-ended; err != nil {
			return err
		}
		// Every other time the server is not there when the machine is back: what it has is in its cache.
		alone := i%2 == 0
		if alone {
			if err := s.cluster.KillServer(); err != nil {
				return err
			}
		}
		if err := s.guest.start(ctx); err != nil {
			return err
		}
		if err := s.reachable(ctx, bootLimit); err != nil {
			return err
		}
		if err := s.cluster.EnsureRunning(ctx); err != nil {
			return err
		}
		if err := s.synced(ctx); err != nil {
			return err
		}
		out, err := s.guest.run(ctx, `journalctl -b -o cat --no-pager -u sluice | grep -E 'msg=starting|cache' | grep -o 'msg=.*' | cut -c1-150`)
		if err != nil {
			return err
		}
		s.say("cut %d (server gone at boot: %v): reachable, then in step with the server\n%s", i+1, alone, out)
	}
	return nil
}

// watched runs a script while the Service is asked for again and again, and fails if one request did.
const watched = `
( while [ ! -e /tmp/stop ]; do
	if curl -sf --max-time 5 http://` + clusterIP + `/ >/dev/null; then echo ok; else echo FAILED; fi
done >/tmp/requests ) &
`

func (s *story) upgrade(ctx context.Context) error {
	for _, version := range []string{"INSTALL_SLUICE_VERSION=" + otherVersion + " ", ""} {
		out, err := s.guest.run(ctx, "rm -f /tmp/stop"+watched+"sleep 1\n"+s.install+version+"sh -\nsleep 1\ntouch /tmp/stop\nwait\n"+
			`echo "requests: $(sort /tmp/requests | uniq -c | tr -s ' \n' ' ')"`)
		s.say("%s", out)
		if err == nil && (strings.Contains(out, "FAILED") || !strings.Contains(out, " ok")) {
			err = errors.New("a request failed meanwhile")
		}
		if err != nil {
			return err
		}
		if err := s.reachable(ctx, 0); err != nil {
			return err
		}
		if err := s.synced(ctx); err != nil {
			return err
		}
		out, err = s.guest.run(ctx, "journalctl -b -u sluice -o cat --no-pager | grep -o 'msg=.*cache.*' | tail -n 3 || true\nrm /tmp/stop /tmp/requests")
		s.say("%s", out)
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *story) uninstall(ctx context.Context) error {
	out, err := s.guest.run(ctx, "sluice-uninstall.sh")
	s.say("%s", out)
	if err != nil {
		return err
	}
	out, err = s.guest.run(ctx, `nft list ruleset; pgrep -a sluice || true; systemctl list-unit-files --no-legend | grep sluice || true; ls -d /run/*sluice* 2>/dev/null || true`)
	if err == nil && out != "" {
		err = fmt.Errorf("it left:\n%s", out)
	}
	if err != nil {
		return err
	}
	after, err := s.guest.run(ctx, files)
	if err != nil {
		return err
	}
	if left := difference(s.before, after); left != "" {
		return fmt.Errorf("it left or removed files:\n%s", left)
	}
	if s.get(ctx, clusterIP) == nil {
		return errors.New("the Service is still reachable")
	}
	s.say("no rule, process, unit or file is left")
	return nil
}

// difference lists the lines that only one of two texts has.
func difference(before, after string) string {
	var s strings.Builder
	count := map[string]int{}
	for line := range strings.Lines(before) {
		count[line]--
	}
	for line := range strings.Lines(after) {
		count[line]++
	}
	for line, n := range count {
		switch {
		case n > 0:
			s.WriteString("+ " + line)
		case n < 0:
			s.WriteString("- " + line)
		}
	}
	return s.String()
}
