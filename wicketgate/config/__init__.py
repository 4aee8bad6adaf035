"""Reads the configuration, makes the parts that it names, and changes them while they run.

Public are ``settings.Settings`` with its sections, and ``settings_file.load_settings`` and ``find_config``. The other
modules make parts for ``wicketgate.gate``: ``runtime``, ``engine``, ``upstreams`` and ``plugins`` from the settings,
``lock_file`` the pins, ``reload`` the exchange of one configuration by the next.
"""
