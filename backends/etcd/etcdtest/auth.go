//go:build unix

package etcdtest

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// The user that WithAuth makes, who may do everything.
const (
	RootUser     = "root"
	RootPassword = "etcdtest-root"
)

// enableAuth makes the root user and role and turns authentication on: clients
// without a user are refused from then on. Clients made afterwards are root's
// unless told otherwise.
func (c *Cluster) enableAuth(ctx context.Context) error {
	err := c.withLeader(ctx, "enable auth", func(ctx context.Context, client *clientv3.Client) error {
		if err := addUser(ctx, client, RootUser, RootPassword, nil); err != nil {
			return err
		}
		_, err := client.AuthEnable(ctx)
		return err
	})
	if err == nil {
		c.auth.Store(true)
	}
	return err
}

// Permission lets a user at the keys that begin with Prefix; "" is all keys.
type Permission struct {
	Prefix string
	Access Access
}

// Access says what a permission allows.
type Access = clientv3.PermissionType

// What a permission may allow.
const (
	Read      = Access(clientv3.PermRead)
	Write     = Access(clientv3.PermWrite)
	ReadWrite = Access(clientv3.PermReadWrite)
)

// AddUser makes a user that has these permissions, and no other, by a role of the
// same name. See AsUser.
func (c *Cluster) AddUser(ctx context.Context, name, password string, permissions ...Permission) error {
	return c.withLeader(ctx, fmt.Sprintf("add user %q", name), func(ctx context.Context, client *clientv3.Client) error {
		return addUser(ctx, client, name, password, permissions)
	})
}

func addUser(
	ctx context.Context, client *clientv3.Client, name, password string, may []Permission,
) error {
	if _, err := client.RoleAdd(ctx, name); err != nil {
		return err
	}
	for _, p := range may {
		key, end := p.Prefix, clientv3.GetPrefixRangeEnd(p.Prefix)
		if key == "" {
			key, end = "\x00", "\x00" // from the first key on
		}
		if _, err := client.RoleGrantPermission(ctx, name, key, end, p.Access); err != nil {
			return fmt.Errorf("permission for %q: %w", p.Prefix, err)
		}
	}
	if _, err := client.UserAdd(ctx, name, password); err != nil {
		return err
	}
	_, err := client.UserGrantRole(ctx, name, name)
	return err
}

// AsUser is a change for Client and NewClient.
func AsUser(name, password string) func(*clientv3.Config) {
	return func(cfg *clientv3.Config) { cfg.Username, cfg.Password = name, password }
}
