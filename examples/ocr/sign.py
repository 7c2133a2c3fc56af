#!/usr/bin/env python3
"""Draws `sign.png`, the picture that the example reads: lines of several sizes, one of them rotated and one upside down. Needs Pillow."""

import pathlib

from PIL import Image, ImageDraw, ImageFont

WIDTH, HEIGHT = 720, 480


def line(sign, text, size, centre, angle, colour):
    """Draws a text around a point, rotated against the clock by an angle in degrees."""
    font = ImageFont.load_default(size)
    left, top, right, bottom = font.getbbox(text)
    layer = Image.new("L", (right - left + 8, bottom - top + 8))
    ImageDraw.Draw(layer).text((4 - left, 4 - top), text, fill=255, font=font)
    layer = layer.rotate(angle, expand=True, resample=Image.Resampling.BICUBIC)
    at = (centre[0] - layer.width // 2, centre[1] - layer.height // 2)
    sign.paste(Image.new("RGB", layer.size, colour), at, layer)


def main():
    sign = Image.new("RGB", (WIDTH, HEIGHT))
    for y in range(HEIGHT):  # a wall in the evening
        sign.paste((70 + y // 8, 80 + y // 10, 105 - y // 12), (0, y, WIDTH, y + 1))
    ImageDraw.Draw(sign).rounded_rectangle((40, 30, 680, 300), 24, fill=(24, 60, 48), outline=(220, 200, 150), width=6)
    line(sign, "CAFE RUST", 72, (360, 95), 0, (250, 230, 180))
    line(sign, "Open daily 8:30 - 19:00", 34, (360, 185), 0, (255, 255, 255))
    line(sign, "Today: soup 4.50, bread 2.20", 26, (360, 250), 0, (230, 240, 230))
    line(sign, "upside down", 30, (190, 350), 180, (255, 240, 120))
    line(sign, "Follow the crab", 40, (480, 400), 12, (255, 140, 90))
    sign.save(pathlib.Path(__file__).resolve().parent / "sign.png", optimize=True)


if __name__ == "__main__":
    main()
