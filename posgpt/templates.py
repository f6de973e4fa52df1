"""Templates of HTML pages, which lie beside the modules that fill them in."""

import jinja2

from posgpt.plots import BLUE, GREY


def load_template(package: str, name: str) -> jinja2.Template:
    """Load a template of a package; text that is put into it is escaped, and `blue` and `grey` are the charts' colors."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(package, ""), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals.update(blue=BLUE, grey=GREY)
    return environment.get_template(name)
