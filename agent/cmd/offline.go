package cmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"sluice/agent"
	"sluice/agent/config"
	"sluice/agent/status"
)

// answerer is what answers about rules: a running agent, or what is known without one.
type answerer interface {
	Explain(context.Context, status.Question) ([]status.Path, error)
	Diff(context.Context) (status.Diff, error)
}

var (
	_ answerer = status.Client{}
	_ answerer = (*agent.Offline)(nil)
)

// asked gets an answer from the running agent, or without one from its cache or its manifests, which is said.
func asked[T any](c *cli.Context, flags configFlags, ask func(answerer) (T, error)) (answer T, err error) {
	cfg, _, err := flags.load() // the agent logs the warnings
	if err != nil {
		return answer, err
	}
	answer, err = ask(status.Client{Socket: cfg.Socket})
	notRunning, is := errors.AsType[*status.NotRunningError](err)
	if !is {
		return answer, err
	}
	answer, err = offline(c, cfg, agent.OfflineOptions{NoKernel: needNetAdmin() != nil}, "no agent is running: ", ask)
	if _, unknown := errors.AsType[*agent.NoObjectsError](err); unknown {
		err = &exitError{exitNotRunning, fmt.Errorf("%w; %w", notRunning, err)}
	}
	return answer, err
}

// offline gets an answer without an agent. What it is from, and what could not be used of it, is said on standard error.
func offline[T any](c *cli.Context, cfg config.Config, o agent.OfflineOptions, why string, ask func(answerer) (T, error)) (answer T, err error) {
	off, err := agent.OpenOffline(c.Context, cfg, o)
	if err != nil {
		return answer, err
	}
	defer func() { err = errors.Join(err, off.Close()) }()
	fmt.Fprintf(c.App.ErrWriter, "sluice: %sanswered from %s\n", why, off.From(c.Context))
	if s, err := off.Status(c.Context); err == nil && !s.NodeKnown {
		fmt.Fprintf(c.App.ErrWriter, "sluice: there is no Node %s in it: its zone and, without --cluster-cidr, its pods' range are unknown; --hostname-override names another\n", s.Node)
	}
	for _, p := range off.Problems(c.Context) {
		fmt.Fprintf(c.App.ErrWriter, "sluice: %s: %s\n", p.Where, p.Reason)
	}
	return ask(off)
}

// dryRunWait is how long a dry run waits for an API server.
const dryRunWait = 10 * time.Second

// dryRun shows what an agent that starts now would change.
func dryRun(c *cli.Context, cfg config.Config) (err error) {
	off, err := agent.OpenOffline(c.Context, cfg, agent.OfflineOptions{Wait: dryRunWait})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, off.Close()) }()
	s, err := off.Status(c.Context)
	if err != nil {
		return err
	}
	d, err := off.Diff(c.Context)
	if err != nil {
		return err
	}
	run := status.DryRun{Status: s, Why: off.Why(), From: off.From(c.Context), Diff: d}
	for _, p := range off.KernelParameters() {
		run.Parameters = append(run.Parameters, p.String())
	}
	err = run.Write(c.App.Writer, time.Now())
	if err == nil && run.Changes() {
		err = &exitError{code: exitFailure}
	}
	return err
}
