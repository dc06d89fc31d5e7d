# The things to do with a fresh checkout. Everything else is `cargo xtask`.

# rustup puts cargo here; a shell that was open before does not know yet.
export PATH := $(PATH):$(HOME)/.cargo/bin
TARGET := $(or $(CARGO_TARGET_DIR),target)

.PHONY: help demo test test-all bench

help:
	@echo "make demo    build Weir and show it in front of a primary and two standbys; ARGS='...' are passed on"
	@echo "make test    all checks, and every test once"
	@echo "make test-all  then a second version of PostgreSQL, PostgreSQL's own suite, and the fuzz targets"
	@echo "make bench   run the benchmark"
	@echo "Each first installs what is missing, and touches nothing when nothing is."

demo:
	@scripts/install-deps.sh
	cargo build --release --package weir
	$(TARGET)/release/weir demo $(ARGS)

test:
	@scripts/install-deps.sh
	cargo xtask test $(ARGS)

test-all:
	@scripts/install-deps.sh
	cargo xtask test --all $(ARGS)

bench:
	@scripts/install-deps.sh
	cargo xtask bench $(ARGS)
