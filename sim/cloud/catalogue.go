package cloudsim

import "net/http"

const (
	organizationID = "5f0c1b1e-0000-4000-8000-00000000000a"
	imageID        = "5f0c1b1e-0000-4000-8000-00000000000b"
	// ImageLabel is the label of the only image.
	ImageLabel = "ubuntu_noble_gpu_os_12"
)

type serverType struct {
	hourly    float64
	gpus      int
	imageSize int64
}

// catalogue has the types, with recorded prices.
func catalogue() map[string]serverType {
	return map[string]serverType{
		"L4-1-24G":   {0.7875, 1, 20_000_000_000},
		"L40S-1-48G": {1.469916, 1, 20_000_000_000},
		"H100-1-80G": {2.8665, 1, 20_000_000_000},
	}
}

func catalogueRoutes() []route {
	return []route{
		{"GET /instance/v1/zones/{zone}/products/servers", "list_types", (*Server).listTypes},
		{"GET /marketplace/v2/local-images", "list_images", (*Server).listImages},
		{"GET /metadata", "metadata", func(*Server, *request) (answer, error) {
			return ok(http.StatusOK, object{"platform": "scaleway", "partition": "scw", "domain": "scw.cloud"}), nil
		}},
	}
}

func (s *Server) listTypes(r *request) (answer, error) {
	all := object{}
	if r.PathValue("zone") == Zone {
		for name, t := range catalogue() {
			all[name] = object{
				"alt_names": []string{}, "arch": "x86_64", "ncpus": 8, "ram": 51539607552, "gpu": t.gpus, "mig_profile": nil, "hourly_price": t.hourly,
				"monthly_price": t.hourly * 730, "volumes_constraint": object{"min_size": 0, "max_size": 0}, "end_of_service": false,
				"capabilities": object{"boot_types": []string{"local"}, "block_storage": true}, "scratch_storage_max_size": 0, "scratch_storage_max_volumes_count": 0,
			}
		}
	}
	// The answer is a map: a real page has fifty of them, and here is one page.
	a := answer{status: http.StatusOK, body: object{"servers": all}, total: len(all)}
	if p := r.URL.Query().Get("page"); p != "" && p != "1" {
		a.body = object{"servers": object{}}
	}
	return a, nil
}

func (s *Server) listImages(r *request) (answer, error) {
	out := []object{}
	if q := r.URL.Query(); q.Get("image_label") == ImageLabel && q.Get("zone") == Zone && (q.Get("type") == "" || q.Get("type") == "instance_sbs") {
		types := []string{}
		for name := range catalogue() {
			types = append(types, name)
		}
		out = append(out, object{"id": imageID, "compatible_commercial_types": types, "arch": "x86_64", "zone": Zone, "label": ImageLabel, "type": "instance_sbs"})
	}
	return countedPage(r, "local_images", out), nil
}
