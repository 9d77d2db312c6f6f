// Package register makes URLs of Kubernetes known to package open. It is imported for that alone:
//
//	import _ "github.com/holdfast-go/holdfast/backends/kubernetes/register"
//
//	store, closeStore, err := open.Open(ctx, "k8s://leases")
//
// The host of a URL is the namespace; k8s:// alone is that of the pod, or of the context of kubectl. In
// a pod the API is reached with the pod's account; elsewhere as kubectl does, by KUBECONFIG or
// ~/.kube/config. One setting may follow a question mark:
//
//	context=NAME  the context of kubectl, in place of the current one, and of the pod's account
package register

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/holdfast-go/holdfast/backends/kubernetes"
	"github.com/holdfast-go/holdfast/backends/open"
	"github.com/holdfast-go/holdfast/store"
)

func init() {
	if err := open.Register("k8s", opener); err != nil {
		panic(err) // another package has taken the scheme
	}
}

func opener(_ context.Context, rest string) (store.Store, func() error, error) {
	namespace, of, err := parse(rest)
	if err != nil {
		return nil, nil, err
	}
	config := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		clientcmd.NewDefaultClientConfigLoadingRules(), &clientcmd.ConfigOverrides{CurrentContext: of})
	if namespace == "" {
		if namespace, _, err = config.Namespace(); err != nil {
			return nil, nil, fmt.Errorf("namespace: %w: %w", store.ErrInvalid, err)
		}
	}
	c, err := config.ClientConfig()
	if err != nil {
		return nil, nil, fmt.Errorf("configuration of kubectl: %w: %w", store.ErrInvalid, err)
	}
	s, err := kubernetes.New(c, namespace)
	if err != nil {
		return nil, nil, err
	}
	return s, s.Close, nil
}

// parse reads what stands behind "k8s:".
func parse(rest string) (namespace, of string, err error) {
	u, err := url.Parse(rest)
	if err != nil || !strings.HasPrefix(rest, "//") || u.User != nil || u.Fragment != "" || strings.Trim(u.Path, "/") != "" {
		return "", "", fmt.Errorf("%w: %.64q: want k8s://namespace?context=name, of which both may be left out", store.ErrInvalid, rest)
	}
	q, err := url.ParseQuery(u.RawQuery)
	of = q.Get("context")
	if err != nil || len(q["context"]) > 1 || of == "" && u.RawQuery != "" || of != "" && len(q) > 1 {
		return "", "", fmt.Errorf("%w: %.64q: of settings there is context, with one value", store.ErrInvalid, rest)
	}
	return u.Host, of, nil
}
