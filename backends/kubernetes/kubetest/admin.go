//go:build unix

package kubetest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	rbac "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"

	"github.com/holdfast-go/holdfast/internal/servertest"
)

const adminToken = "kubetest-admin"

func userName(i int) string  { return fmt.Sprint("user-", i) }
func userToken(i int) string { return fmt.Sprint("kubetest-token-", i) }

// do sends one request, whose body is JSON or made JSON, over a connection of its own.
func do(ctx context.Context, config *rest.Config, method, path string, body, into any) error {
	sent, ok := body.([]byte)
	if body != nil && !ok {
		var err error
		if sent, err = json.Marshal(body); err != nil {
			return err
		}
	}
	tls, err := rest.TLSConfigFor(config)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, config.Host+path, bytes.NewReader(sent))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+config.BearerToken)
	req.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	res, err := (&http.Transport{TLSClientConfig: tls, DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	got, err := io.ReadAll(io.LimitReader(res.Body, 64<<20))
	if err == nil && res.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s: %.1000s", method, path, res.Status, got)
	}
	if err == nil && into != nil {
		err = json.Unmarshal(got, into)
	}
	return err
}

// Do sends one request to the server as a user who may do everything, past all faults on its routes.
// body is JSON or made JSON, and the answer's is read into into; either may be nil. An answer that says
// no is an error. A PATCH is a merge patch.
func (s *Server) Do(ctx context.Context, method, path string, body, into any) error {
	ctx, cancel := s.c.group.Bounded(ctx)
	defer cancel()
	if err := do(ctx, s.config(address(s.port)), method, path, body, into); err != nil {
		return fmt.Errorf("kubetest: %s: %w", s.Name(), err)
	}
	return nil
}

// AddNamespace makes a namespace, by the first server.
func (c *Cluster) AddNamespace(ctx context.Context, name string) error {
	return c.servers[0].Do(ctx, http.MethodPost, "/api/v1/namespaces", map[string]any{"metadata": map[string]any{"name": name}}, nil)
}

// User is somebody who may do little.
type User struct{ Name, Token string }

// AddUser makes a user who may do in a namespace what the rules of a Role say, and nothing else, and
// waits until all servers know. There can be 64.
func (c *Cluster) AddUser(ctx context.Context, namespace string, rules ...rbac.PolicyRule) (User, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.users == maxUsers {
		return User{}, fmt.Errorf("kubetest: there are %d users already", maxUsers)
	}
	u := User{userName(c.users), userToken(c.users)}
	c.users++
	base := "/apis/rbac.authorization.k8s.io/v1/namespaces/" + namespace
	named := map[string]any{"name": u.Name}
	err := c.servers[0].Do(ctx, http.MethodPost, base+"/roles", map[string]any{"metadata": named, "rules": rules}, nil)
	if err == nil {
		const group = "rbac.authorization.k8s.io"
		err = c.servers[0].Do(ctx, http.MethodPost, base+"/rolebindings", map[string]any{
			"metadata": named,
			"roleRef":  rbac.RoleRef{APIGroup: group, Kind: "Role", Name: u.Name},
			"subjects": []rbac.Subject{{APIGroup: group, Kind: rbac.UserKind, Name: u.Name}},
		}, nil)
	}
	for _, s := range c.servers {
		if err == nil && len(rules) > 0 {
			err = s.knows(ctx, u, namespace, len(rules))
		}
	}
	return u, err
}

// knows waits until the server lets the user do what so many rules of a namespace say.
func (s *Server) knows(ctx context.Context, u User, namespace string, rules int) error {
	ctx, cancel := s.c.group.Bounded(ctx)
	defer cancel()
	config := s.config(address(s.port))
	config.BearerToken = u.Token
	for {
		var review struct {
			Status struct{ ResourceRules []any }
		}
		err := do(ctx, config, http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
			map[string]any{"spec": map[string]any{"namespace": namespace}}, &review)
		const everybodys = 1 // who may review what they may
		if err == nil && len(review.Status.ResourceRules) >= rules+everybodys {
			return nil
		}
		if ended := servertest.Pause(ctx, 20*time.Millisecond); ended != nil {
			return fmt.Errorf("kubetest: %s does not know %s: %w; last: %v", s.Name(), u.Name, ended, err)
		}
	}
}
