//go:build linux

package stage

import (
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/lease"
)

// etcdFloor is the shortest TTL that etcd grants.
const etcdFloor = 2 * time.Second

// Config is a program's settings.
type Config struct {
	name     string // the program's
	TTL      time.Duration
	Duration time.Duration // for which there is work
	Verbose  bool

	// Of the one node of this process, if it is one of several processes.
	Endpoints []string // of etcd
	ID        string
	Listen    string // host:port
	Journal   bool   // tell what happens as JSON, and obey standard input
}

// Check checks what the run in one process needs.
func (c Config) Check() error {
	if err := c.checkTTL(); err != nil {
		return err
	}
	if least := c.TTL + 2*time.Second; c.Duration < least {
		return fmt.Errorf("-duration: %w: %v, must be at least %v, the TTL and 2s", lease.ErrInvalid, c.Duration, least)
	}
	return nil
}

func (c Config) checkTTL() error {
	if c.TTL < lease.MinTTL {
		return fmt.Errorf("-ttl: %w: %v, must be at least %v", lease.ErrInvalid, c.TTL, lease.MinTTL)
	}
	return nil
}

// CheckEtcdTTL checks that etcd can grant the TTL.
func (c Config) CheckEtcdTTL() error {
	if c.TTL < etcdFloor || c.TTL%time.Second != 0 {
		return fmt.Errorf("-ttl: %w: %v, must be whole seconds and at least %v, as etcd has it", lease.ErrInvalid, c.TTL, etcdFloor)
	}
	return nil
}

// CheckNode checks what one node of a cluster of processes needs.
func (c Config) CheckNode() error {
	if c.ID == "" {
		return fmt.Errorf("-id: %w: empty", lease.ErrInvalid)
	}
	if err := c.checkTTL(); err != nil {
		return err
	}
	_, _, err := c.Address()
	return err
}

// Address is what -listen says.
func (c Config) Address() (host string, port int, err error) {
	host, text, err := net.SplitHostPort(c.Listen)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	if err != nil {
		return "", 0, fmt.Errorf("-listen: %w: %q, must be host:port: %w", lease.ErrInvalid, c.Listen, err)
	}
	return host, port, nil
}
